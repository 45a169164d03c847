package gpu

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/wire"
)

// mostLine is the longest line that a program may print.
const mostLine = 1 << 20

// start starts a program whose lines are read. Should this process die, its next line kills it: nobody has the pipe any more.
func start(cmd *exec.Cmd) (*program, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	words, more, err := os.Pipe()
	if err != nil {
		out.Close()
		in.Close()
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, more // files, so that waiting for its end waits for nothing else
	err = cmd.Start()
	in.Close()
	more.Close()
	if err != nil {
		out.Close()
		words.Close()
		return nil, err
	}
	p := &program{cmd: cmd, out: out, words: words, lines: make(chan string, 64), ended: make(chan struct{}), left: make(chan struct{})}
	go func() {
		defer close(p.lines)
		each(out, func(text string) bool {
			select {
			case p.lines <- text:
				return true
			case <-p.left:
				return false
			}
		})
	}()
	var spoken sync.WaitGroup
	spoken.Go(func() { each(words, func(text string) bool { p.say(text); return true }) })
	go func() {
		p.err = cmd.Wait()
		spoken.Wait()
		close(p.ended)
	}()
	return p, nil
}

// program is one that was started.
type program struct {
	cmd        *exec.Cmd
	out, words io.Closer
	lines      chan string
	ended      chan struct{}
	left       chan struct{} // closed when nobody reads its lines any more
	err        error         // of its end

	mu   sync.Mutex
	said string // the last that it said and that was no reading
}

func each(r io.Reader, do func(string) bool) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostLine)
	for s.Scan() {
		if text := strings.TrimSpace(s.Text()); text != "" && !do(text) {
			return
		}
	}
}

func (p *program) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = clip(text)
}

func (p *program) kill() { p.cmd.Process.Kill() }

// abandon lets go of a program that is over, or that cannot be ended.
func (p *program) abandon() {
	close(p.left)
	p.out.Close()
	p.words.Close()
}

// why is what a program's end means.
func (p *program) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.said != "":
		return errors.New(p.said)
	case p.err != nil:
		return p.err
	}
	return errors.New("it ended without a word")
}

// apps are the processes on the GPUs as nvidia-smi tells them: it cannot do so in the same call as all else.
type apps struct {
	asking   sync.Mutex // held while they are asked for: one that hangs is the only one
	mu       sync.Mutex
	byDevice map[string][]wire.SampleProcess
}

// appsEvery is how often they are asked for: a process starts seldom.
const appsEvery = 10 * time.Second

func (a *apps) follow(ctx context.Context, smi string, patience time.Duration) {
	for ctx.Err() == nil {
		a.ask(ctx, smi, patience)
		pause(ctx, appsEvery)
	}
}

// ask runs nvidia-smi once. One that hangs is killed, and waited for: the next is not started beside it.
func (a *apps) ask(ctx context.Context, smi string, patience time.Duration) {
	if !a.asking.TryLock() {
		return
	}
	defer a.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, smi, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits").Output()
	found := map[string][]wire.SampleProcess{}
	if err == nil {
		each(strings.NewReader(string(out)), func(line string) bool {
			if uuid, p, err := process(line); err == nil {
				found[uuid] = append(found[uuid], p)
			}
			return true
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byDevice = found
}

func (a *apps) of(uuid string) []wire.SampleProcess {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byDevice[uuid]
}
