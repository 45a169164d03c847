package overhead

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// child is a process that the bench starts, in a group of its own: Ctrl-C on the terminal does not reach it, and what it starts ends with it.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with all that it writes
	gone chan struct{} // closed when it has ended
	err  error         // how it ended; to be read after gone
}

// start runs a command line in an environment.
func start(name string, argv, env []string, log string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	defer out.Close()
	c := &child{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: log, gone: make(chan struct{})}
	c.cmd.Env = env
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	go func() { c.err = c.cmd.Wait(); close(c.gone) }()
	return c, nil
}

func (c *child) group() int { return c.cmd.Process.Pid }

// alive returns how it ended, if it has.
func (c *child) alive() error {
	select {
	case <-c.gone:
		return c.ended()
	default:
		return nil
	}
}

// ended is an error with the end of its log.
func (c *child) ended() error {
	how := "without an error"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("the %s ended by itself (%s); the end of its log:\n%s", c.name, how, c.tail())
}

// stop asks it to end, and after a while makes it. What it has started goes too.
func (c *child) stop(patience time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.gone:
	case <-timer.C:
	}
	_ = syscall.Kill(-c.group(), syscall.SIGKILL)
	<-c.gone
}

// size of its log, bytes.
func (c *child) size() (int64, error) {
	info, err := os.Stat(c.log)
	if err != nil {
		return 0, fmt.Errorf("log of the %s: %w", c.name, err)
	}
	return info.Size(), nil
}

// maxOutput bounds what is read of one run's log.
const maxOutput = 256 << 20

// output reads a part of its log.
func (c *child) output(from, to int64) ([]byte, error) {
	if to-from > maxOutput {
		return nil, fmt.Errorf("the %s wrote %d bytes of log in one run, at most %d are read; make it say less", c.name, to-from, maxOutput)
	}
	f, err := os.Open(c.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, to-from)
	_, err = f.ReadAt(b, from)
	return b, err
}

// tailBytes is how much of a log an error shows.
const tailBytes = 3000

func (c *child) tail() string {
	f, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := c.size(); err == nil && size > tailBytes {
		_, err = f.Seek(size-tailBytes, io.SeekStart)
		if err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, tailBytes))
	return strings.TrimSpace(errText(string(b), err))
}

func errText(text string, err error) string {
	if err != nil && !errors.Is(err, io.EOF) {
		return text + " (" + err.Error() + ")"
	}
	return text
}
