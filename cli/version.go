package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/wire"
)

// Version is set by the release build; otherwise the module's version or commit is shown.
var Version string

// named is the program with its version, as what it writes says who wrote it.
func named() string { return "whylate " + numbered() }

// numbered is the version alone.
func numbered() string { return cmp.Or(Version, "development") }

func (e *env) version() *cobra.Command {
	out := output{}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and the format that it reads",
		Example: "  whylate version -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit,omitempty"`
				Go      string `json:"go"`
				Format  string `json:"format"`
			}{Version: Version, Go: runtime.Version(), Format: fmt.Sprintf("%d.%d", wire.Major, wire.Minor)}
			if info, ok := debug.ReadBuildInfo(); ok {
				if v.Version == "" {
					v.Version = info.Main.Version
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if v.Version == "" || v.Version == "(devel)" {
				v.Version = "development"
			}
			return out.print(e, v, func() {
				fmt.Fprintf(e.out, "whylate %s", v.Version)
				if v.Commit != "" {
					fmt.Fprintf(e.out, " (%.12s)", v.Commit)
				}
				fmt.Fprintf(e.out, " · %s · reads and writes captures of format %s\n", v.Go, v.Format)
			})
		},
	}
	out.flags(cmd)
	return cmd
}
