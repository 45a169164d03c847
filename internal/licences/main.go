// Command licences writes the licences of everything that a binary is made of, from the module cache, and fails where one is
// missing, unknown or not allowed.
//
//	go run ./internal/licences -licences THIRD_PARTY_LICENSES.txt -notice NOTICE.out ./cmd/whylate
//
// It looks at the packages that are linked for GOOS, GOARCH and CGO_ENABLED as they are set, and not at those of tests. The
// standard library is one of them. What is written depends on nothing else, so that archives can be compared byte by byte.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	set := flag.NewFlagSet("licences", flag.ContinueOnError)
	licences := set.String("licences", "", "`file` to write all licences to")
	notice := set.String("notice", "", "`file` to write our NOTICE to, with the notices of the others below it")
	ours := set.String("our-notice", "NOTICE", "`file` with our NOTICE")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() == 0 {
		return errors.New("no package; name the commands that are shipped, such as ./cmd/whylate")
	}
	packages, err := list(goTool, set.Args())
	if err != nil {
		return err
	}
	found, err := collect(packages)
	if err != nil {
		return err
	}
	if *licences != "" {
		if err := writeFile(*licences, func(w io.Writer) error { return writeLicences(w, found) }); err != nil {
			return err
		}
	}
	if *notice != "" {
		own, err := os.ReadFile(*ours)
		if err != nil {
			return fmt.Errorf("read our notice: %w", err)
		}
		if err := writeFile(*notice, func(w io.Writer) error { return writeNotice(w, own, found) }); err != nil {
			return err
		}
	}
	if *licences == "" && *notice == "" {
		return writeTable(out, found)
	}
	return nil
}

// goTool runs the go command and returns what it printed.
func goTool(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

func writeFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
