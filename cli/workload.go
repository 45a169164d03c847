package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/ingest"
)

func (e *env) workload() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Look at workloads, make them, and make one of another",
		Long: `A workload is when requests arrive, how long they are and which prefixes they share. It holds no content.

Read are, by content: whylate's own JSON Lines, Azure's traces of 2023 and 2024 (CSV), BurstGPT (CSV), and Mooncake (JSON Lines with
hash ids). FILE '-' is standard input. What is written is always whylate's own format, which 'whylate replay' plays; it plays
the others as well.`,
		Example: `  whylate workload show azure.csv
  whylate workload make poisson --rate 5 --prompt 512 --output 128 --for 10m --seed 7 -o load.jsonl
  whylate workload convert azure.csv --first 1000 --speed 2 | whylate replay - --url http://127.0.0.1:8000
  whylate workload mix chat.jsonl code.csv=0.5 -o both.jsonl
  whylate workload from-ledger --from run.wlc -o captured.jsonl`,
		Args: args(0, 0, "a command"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.workloadShow(), e.workloadMake(), e.workloadConvert(), e.workloadMix(), e.workloadFromLedger())
	return cmd
}

// workloadInput are the flags of commands that read workloads.
type workloadInput struct {
	e *env
	o workload.Options
}

func (in *workloadInput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&in.o.SkipBad, "skip-bad", false, "leave out lines that cannot be read, and count them by reason")
	f.BoolVar(&in.o.Sort, "sort", false, "accept times in any order and sort by time; what does not fit into memory goes to temporary files")
}

// workloadFile is a workload that is being read.
type workloadFile struct {
	*workload.Reader
	name string
	file io.Closer
}

// open opens a workload; '-' is standard input.
func (in *workloadInput) open(path string) (*workloadFile, error) {
	src, file := in.e.in, io.Closer(io.NopCloser(nil))
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read the workload: %w", err)
		}
		src, file = f, f
	}
	r, err := workload.Read(src, in.o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the workload %s: %w", path, err), file.Close())
	}
	return &workloadFile{r, path, file}, nil
}

// Next names the file in an error.
func (w *workloadFile) Next() (experiment.Request, error) {
	r, err := w.Reader.Next()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read the workload %s: %w", w.name, err)
	}
	return r, err
}

func (w *workloadFile) Close() error { return errors.Join(w.Reader.Close(), w.file.Close()) }

// tell says what was left out.
func (w *workloadFile) tell(e *env) {
	if s := w.Skipped(); s.Lines > 0 {
		fmt.Fprintf(e.err, "%s: %d lines left out: %s; the first: %v\n", w.name, s.Lines, countsText(s.Reasons), s.First)
	}
}

// countsText lists counts, the largest first.
func countsText(counts map[string]int) string {
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d × %s", counts[r], r)
	}
	return strings.Join(reasons, ", ")
}

func (e *env) workloadShow() *cobra.Command {
	in, out := workloadInput{e: e}, output{}
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Say what is in a workload",
		Long: `Say how many requests a workload has, how they arrive, how long they are, and how much of their prompts begins as others did.
A file of any length is read in the same memory.`,
		Example: `  whylate workload show azure.csv
  whylate workload make gamma --rate 5 --cv 3 --for 1h | whylate workload show -`,
		Args: args(1, 1, "one workload"),
		RunE: func(cmd *cobra.Command, files []string) (err error) {
			w, err := in.open(files[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
			s := workloadSummary{Format: w.Format}
			if s.Summary, err = workload.Show(w); err != nil {
				return err
			}
			if skipped := w.Skipped(); skipped.Lines > 0 {
				s.LeftOut, s.LeftOutBy = skipped.Lines, skipped.Reasons
			}
			w.tell(e)
			return out.print(e, &s, func() { e.printWorkload(&s) })
		},
	}
	in.flags(cmd)
	out.flags(cmd)
	return cmd
}

type workloadSummary struct {
	Format string `json:"format"`
	workload.Summary
	LeftOut   int            `json:"lines_left_out,omitempty"`
	LeftOutBy map[string]int `json:"lines_left_out_by_reason,omitempty"`
}

func (e *env) printWorkload(s *workloadSummary) {
	fmt.Fprintln(e.out, e.bold(fmt.Sprintf("%s requests over %s (%s)", count(int(s.Requests)), diagnose.Span(s.SpanNs), s.Format)))
	if s.Requests == 0 {
		return
	}
	if s.Rate > 0 {
		fmt.Fprintf(e.out, "arrivals   %.3g requests/s, %.3g in the busiest 10 s; gaps vary by %.2f of their mean (1 is chance, more is bursts)\n", s.Rate, s.PeakRate, s.GapCV)
	} else {
		fmt.Fprintln(e.out, "arrivals   all at once")
	}
	if s.Rate > 0 && s.Together > 0 {
		fmt.Fprintf(e.out, "           %s arrive at the very time of the one before\n", count(int(s.Together)))
	}
	if s.Sequences > s.Requests {
		fmt.Fprintf(e.out, "sequences  %s, as some requests ask for several\n", count(int(s.Sequences)))
	}
	switch about := ""; {
	case !s.Structure:
		fmt.Fprintln(e.out, "prefixes   not told")
	default:
		if s.SharedLeast {
			about = "at least "
		}
		fmt.Fprintf(e.out, "prefixes   %s%.1f %% of the prompt tokens had begun a prompt before: a cache without limit would know them\n", about, 100*s.SharedPart)
	}
	if s.Cancelled > 0 {
		fmt.Fprintf(e.out, "hang-ups   %s requests\n", count(int(s.Cancelled)))
	}
	fmt.Fprintln(e.out)
	t := e.table("TOKENS", "MEAN", "P50", "P90", "P99", "MAX", "SUM")
	for _, row := range []struct {
		name string
		l    workload.Lengthy
	}{{"prompt", s.Prompt}, {"output", s.Output}} {
		t.row(row.name, fmt.Sprintf("%.1f", row.l.Mean), fmt.Sprint(row.l.P50), fmt.Sprint(row.l.P90), fmt.Sprint(row.l.P99), fmt.Sprint(row.l.Max), fmt.Sprint(row.l.Sum))
	}
	t.end()
	if len(s.Classes) > 0 {
		fmt.Fprintln(e.out)
		t := e.table("CLASS", "REQUESTS")
		for _, c := range s.Classes {
			t.row(cmp.Or(c.Class, "-"), count(int(c.Requests)))
		}
		t.end()
	}
}

// workloadOutput is the -o flag of commands that write a workload.
type workloadOutput struct {
	e    *env
	path string
}

func (o *workloadOutput) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.path, "out", "o", "-", "file to write; '-' is standard output")
}

// write writes the stream, and says on the error output how much it was. It refuses to write over what it reads.
func (o *workloadOutput) write(s experiment.Stream, inputs ...string) (err error) {
	to := o.e.out
	if o.path != "-" {
		if info, err := os.Stat(o.path); err == nil {
			for _, in := range inputs {
				if read, err := os.Stat(in); err == nil && os.SameFile(info, read) {
					return usageError{fmt.Errorf("--out %s is what is read: give another file", o.path)}
				}
			}
		}
		f, err := os.Create(o.path)
		if err != nil {
			return fmt.Errorf("write the workload: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	w := experiment.NewWriter(to)
	n, last := 0, time.Duration(0)
	for {
		r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = w.Write(&r)
		}
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		n, last = n+1, r.At
	}
	fmt.Fprintf(o.e.err, "%d requests over %s\n", n, diagnose.Span(int64(last)))
	return w.Flush()
}

// workloadChanges are the flags that change a workload.
type workloadChanges struct {
	begin, end   time.Duration
	first, fit   int
	speed, scale float64
	shorten      float64
	class        string
	seed         uint64
	tooLong      int
}

func (c *workloadChanges) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&c.shorten, "shorten", 1, "multiply all lengths, those of shared prefixes too; 0.1 makes a tenth of them")
	f.IntVar(&c.fit, "fit", 0, "leave out requests with more tokens than this, prompt and answer together, and count them")
	f.Float64Var(&c.scale, "scale", 1, "change the rate and keep the time: 0.5 leaves out every other request by chance, 2 adds a copy of each, 10 s later at most and of other users")
	f.DurationVar(&c.begin, "begin", 0, "leave out what arrives before, and begin then")
	f.DurationVar(&c.end, "end", 0, "leave out what arrives from then on")
	f.IntVar(&c.first, "first", 0, "only the first so many requests")
	f.Float64Var(&c.speed, "speed", 1, "2 plays it in half the time")
	f.StringVar(&c.class, "class", "", "name of the class of requests that have none")
	f.Uint64Var(&c.seed, "seed", 0, "of what is left to chance")
}

// apply makes the changes, in the order of the flags.
func (c *workloadChanges) apply(s experiment.Stream) (experiment.Stream, error) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"shorten", c.shorten}, {"scale", c.scale}, {"speed", c.speed}} {
		if !(f.value > 0 && f.value <= 1e6) {
			return nil, usageError{fmt.Errorf("--%s %v: give a factor above 0, such as 2 or 0.5", f.name, f.value)}
		}
	}
	if c.begin < 0 || c.end < 0 || c.end > 0 && c.end <= c.begin || c.first < 0 || c.fit < 0 {
		return nil, usageError{errors.New("--begin, --end, --first and --fit: give 0 or more, and an end after the beginning")}
	}
	if c.shorten != 1 {
		s = workload.Shorten(s, c.shorten)
	}
	if c.fit > 0 {
		s = workload.Fit(s, c.fit, func() { c.tooLong++ })
	}
	if c.scale != 1 {
		s = workload.Scale(s, c.scale, c.seed)
	}
	if c.begin > 0 || c.end > 0 {
		s = workload.Cut(s, c.begin, c.end)
	}
	if c.first > 0 {
		s = workload.First(s, c.first)
	}
	if c.speed != 1 {
		s = workload.Speed(s, c.speed)
	}
	if c.class != "" {
		s = workload.Class(s, c.class)
	}
	return s, nil
}

// tell says what did not fit.
func (c *workloadChanges) tell(e *env) {
	if c.tooLong > 0 {
		fmt.Fprintf(e.err, "%d requests left out, as they have more than %d tokens (--fit)\n", c.tooLong, c.fit)
	}
}

func (e *env) workloadConvert() *cobra.Command {
	in, out, change := workloadInput{e: e}, workloadOutput{e: e}, workloadChanges{}
	cmd := &cobra.Command{
		Use:   "convert FILE",
		Short: "Write a workload of any known format in whylate's own, whole or changed",
		Long: `Write a workload in whylate's own format. Changes are made in this order: --shorten, --fit, --scale, --begin and --end, --first,
--speed; for another order, pipe one convert into another.`,
		Example: `  whylate workload convert azure.csv --first 1000 --speed 2 -o load.jsonl
  whylate workload convert mooncake.jsonl --shorten 0.05 --fit 4096 --begin 10m --end 20m`,
		Args: args(1, 1, "one workload"),
		RunE: func(cmd *cobra.Command, files []string) (err error) {
			w, err := in.open(files[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
			s, err := change.apply(w)
			if err != nil {
				return err
			}
			err = out.write(s, files[0])
			w.tell(e)
			change.tell(e)
			return err
		},
	}
	change.flags(cmd)
	in.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (e *env) workloadMix() *cobra.Command {
	in, out, change := workloadInput{e: e}, workloadOutput{e: e}, workloadChanges{}
	cmd := &cobra.Command{
		Use:   "mix FILE[=WEIGHT] FILE[=WEIGHT]…",
		Short: "Play several workloads at once",
		Long: `Write the requests of several workloads as one, by time. A weight is how many requests come of one of that file: 0.5 keeps every
other by chance, 1 is all. The files share no prefixes with each other. The other changes are made of the mix.`,
		Example: `  whylate workload mix chat.jsonl code.csv=0.5 -o both.jsonl`,
		Args:    args(2, 1000, "two workloads or more"),
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			var parts []workload.Part
			var paths []string
			for _, name := range names {
				path, weight, err := weighted(name)
				if err != nil {
					return err
				}
				w, err := in.open(path)
				if err != nil {
					return err
				}
				defer w.Close()
				defer w.tell(e)
				parts, paths = append(parts, workload.Part{Stream: w, Weight: weight}), append(paths, path)
			}
			mixed, err := workload.Mix(parts, change.seed)
			if err != nil {
				return err
			}
			s, err := change.apply(mixed)
			if err != nil {
				return err
			}
			defer change.tell(e)
			return out.write(s, paths...)
		},
	}
	change.flags(cmd)
	in.flags(cmd)
	out.flags(cmd)
	return cmd
}

// weighted splits FILE=WEIGHT.
func weighted(name string) (path string, weight float64, err error) {
	i := strings.LastIndexByte(name, '=')
	if i < 0 {
		return name, 1, nil
	}
	weight, err = strconv.ParseFloat(name[i+1:], 64)
	if err != nil || !(weight > 0 && weight <= 1e6) {
		return "", 0, usageError{fmt.Errorf("%s: give a weight above 0 after '=', such as chat.jsonl=0.5", name)}
	}
	return name[:i], weight, nil
}

func (e *env) workloadFromLedger() *cobra.Command {
	src, out, change := source{e: e}, workloadOutput{e: e}, workloadChanges{}
	cmd := &cobra.Command{
		Use:   "from-ledger",
		Short: "Make a workload of the requests that were recorded",
		Long: `Make a workload of the requests in captures: when each arrived, how long prompt and answer were, which blocks prompts shared (where
the probe recorded block hashes; they are numbered anew), n, priority, log-probabilities, class, and when clients hung up.
It holds no content, no ids and no users, so it may leave the house.`,
		Example: `  whylate workload from-ledger --from run.wlc -o captured.jsonl
  whylate workload from-ledger --from demo | whylate workload show -`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths := src.from
			if len(paths) == 0 {
				var err error
				if paths, err = newest(dataDir()); err != nil {
					return err
				}
			}
			a := ingest.New()
			a.KeepHashes = true
			if err := e.load(paths, a); err != nil {
				return err
			}
			taken := workload.FromLedger(a.Book())
			s, err := change.apply(experiment.Requests(taken.Requests))
			if err != nil {
				return err
			}
			if err := out.write(s, paths...); err != nil {
				return err
			}
			if len(taken.LeftOut) > 0 {
				fmt.Fprintf(e.err, "requests left out: %s\n", countsText(taken.LeftOut))
			}
			if taken.Engines == 0 {
				fmt.Fprintln(e.err, "no block hashes were recorded, so no request tells a prefix (WHYLATE_BLOCK_HASHES)")
			}
			change.tell(e)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&src.from, "from", nil, "what to read: captures (.wlc), a run bundle, a ring directory, a data directory, or 'demo'; may be repeated. Default: the newest capture in $WHYLATE_DATA_DIR, with the replays recorded since it began")
	change.flags(cmd)
	out.flags(cmd)
	return cmd
}
