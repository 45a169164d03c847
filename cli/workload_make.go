package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/workload"
)

func (e *env) workloadMake() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "make KIND",
		Short: "Make a workload: poisson, gamma, diurnal, steady, batch, closed, conversations, retrieval",
		Long: `Make a workload. The same seed makes the same one. Lengths are given as one number, a range (100-200), or quantiles
(p50=512,p90=2000,p99=8000), or drawn from another workload (--lengths FILE).`,
		Example: `  whylate workload make poisson --rate 5 --prompt 512 --output 128 --for 10m --seed 7
  whylate workload make gamma --rate 5 --cv 3 --lengths azure.csv --for 1h
  whylate workload make conversations --rate 0.2 --turns 5 --think 20s --instructions 800 --for 30m
  whylate workload make retrieval --rate 2 --documents 500 --document p50=1500,p99=6000 --per-request 3 --for 10m`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return usageError{fmt.Errorf("%q is no kind of workload; see '%s --help'", given[0], cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.makePoisson(), e.makeGamma(), e.makeDiurnal(), e.makeSteady(), e.makeBatch(), e.makeClosed(), e.makeConversations(), e.makeRetrieval())
	return cmd
}

// maker is what all kinds have in common.
type maker struct {
	e              *env
	out            workloadOutput
	span           time.Duration
	count          int
	seed           uint64
	class          string
	prompt, output string
	lengths        string
}

// command makes the command of one kind; make gives its stream, which need not end.
func (e *env) maker(use, short string, m *maker, make func() (experiment.Stream, error)) *cobra.Command {
	m.e, m.out.e = e, e
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if m.span <= 0 && m.count <= 0 {
				return usageError{errors.New("how much? Give --for 10m, --count 1000, or both")}
			}
			s, err := make()
			if err != nil {
				return usageError{err}
			}
			if m.span > 0 {
				s = workload.Cut(s, 0, m.span)
			}
			if m.count > 0 {
				s = workload.First(s, m.count)
			}
			if m.class != "" {
				s = workload.Class(s, m.class)
			}
			return m.out.write(s, m.lengths)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&m.span, "for", 0, "how long requests arrive")
	f.IntVar(&m.count, "count", 0, "how many requests at most")
	f.Uint64Var(&m.seed, "seed", 0, "of what is left to chance")
	f.StringVar(&m.class, "class", "", "class of the requests")
	m.out.flags(cmd)
	return cmd
}

// flags that say how long requests are.
func (m *maker) lengthFlags(cmd *cobra.Command) {
	m.partFlags(cmd, "tokens of a prompt", "tokens of an answer")
	cmd.Flags().StringVar(&m.lengths, "lengths", "", "draw both from the requests of this workload instead, in pairs as they occur")
	cmd.MarkFlagsMutuallyExclusive("lengths", "prompt")
	cmd.MarkFlagsMutuallyExclusive("lengths", "output")
}

func (m *maker) partFlags(cmd *cobra.Command, prompt, output string) {
	cmd.Flags().StringVar(&m.prompt, "prompt", "512", prompt)
	cmd.Flags().StringVar(&m.output, "output", "128", output)
}

// distributions reads --prompt and --output.
func (m *maker) distributions() (prompt, output workload.Distribution, err error) {
	if prompt, err = workload.ParseDistribution(m.prompt); err != nil {
		return nil, nil, fmt.Errorf("--prompt: %w", err)
	}
	if output, err = workload.ParseDistribution(m.output); err != nil {
		return nil, nil, fmt.Errorf("--output: %w", err)
	}
	return prompt, output, nil
}

// independent makes requests that share nothing.
func (m *maker) independent(at workload.Arrivals, err error) (experiment.Stream, error) {
	if err != nil {
		return nil, err
	}
	if m.lengths != "" {
		in := workloadInput{e: m.e}
		w, err := in.open(m.lengths)
		if err != nil {
			return nil, err
		}
		defer w.Close()
		lengths, err := workload.LengthsOf(w, m.seed)
		return workload.Independently(at, lengths, m.seed), err
	}
	prompt, output, err := m.distributions()
	return workload.Independently(at, workload.Independent(prompt, output), m.seed), err
}

func rateFlag(cmd *cobra.Command, rate *float64, what string) {
	cmd.Flags().Float64Var(rate, "rate", 1, what)
}

func cvFlag(cmd *cobra.Command, cv *float64, standard float64) {
	cmd.Flags().Float64Var(cv, "cv", standard, "coefficient of variation of the gaps between arrivals: 1 is chance, 3 is bursty, 0.3 nearly even")
}

func (e *env) makePoisson() *cobra.Command {
	m, rate := &maker{}, 0.0
	cmd := e.maker("poisson", "Requests that arrive by chance", m, func() (experiment.Stream, error) { return m.independent(workload.Poisson(rate, m.seed)) })
	rateFlag(cmd, &rate, "requests a second, on average")
	m.lengthFlags(cmd)
	return cmd
}

func (e *env) makeGamma() *cobra.Command {
	m, rate, cv := &maker{}, 0.0, 0.0
	cmd := e.maker("gamma", "Requests that arrive in bursts", m, func() (experiment.Stream, error) { return m.independent(workload.Gamma(rate, cv, m.seed)) })
	rateFlag(cmd, &rate, "requests a second, on average")
	cvFlag(cmd, &cv, 3)
	m.lengthFlags(cmd)
	return cmd
}

func (e *env) makeDiurnal() *cobra.Command {
	m, rate, swing, period := &maker{}, 0.0, 0.0, time.Duration(0)
	cmd := e.maker("diurnal", "Requests whose rate follows the day", m, func() (experiment.Stream, error) {
		return m.independent(workload.Diurnal(rate, swing, period, m.seed))
	})
	rateFlag(cmd, &rate, "requests a second, on average over a period")
	cmd.Flags().Float64Var(&swing, "swing", 0.8, "the rate goes from (1 − swing) to (1 + swing) times the average; it begins at its least")
	cmd.Flags().DurationVar(&period, "period", 24*time.Hour, "how long a day is")
	m.lengthFlags(cmd)
	return cmd
}

func (e *env) makeSteady() *cobra.Command {
	m, rate := &maker{}, 0.0
	cmd := e.maker("steady", "Requests at even distances", m, func() (experiment.Stream, error) { return m.independent(workload.Steady(rate)) })
	rateFlag(cmd, &rate, "requests a second")
	m.lengthFlags(cmd)
	return cmd
}

func (e *env) makeBatch() *cobra.Command {
	m := &maker{}
	cmd := e.maker("batch", "Requests that all arrive at the start, as an offline job's do", m, func() (experiment.Stream, error) {
		if m.count <= 0 {
			return nil, errors.New("give --count: all requests of a batch arrive at once")
		}
		return m.independent(workload.AtOnce(), nil)
	})
	m.lengthFlags(cmd)
	return cmd
}

// answerFlags say how long answers are assumed to take.
func answerFlags(cmd *cobra.Command, t *workload.AnswerTime) {
	cmd.Flags().DurationVar(&t.First, "first-token", 500*time.Millisecond, "how long an answer's first token is assumed to take")
	cmd.Flags().DurationVar(&t.Token, "each-token", 30*time.Millisecond, "how long each further one is assumed to take")
}

func checkAnswers(t workload.AnswerTime, think time.Duration) error {
	if t.First < 0 || t.Token < 0 || think < 0 || t.First+t.Token+think == 0 {
		return errors.New("--first-token, --each-token and --think: give times of 0 or more, not all 0")
	}
	return nil
}

func (e *env) makeClosed() *cobra.Command {
	m, clients, think, answer := &maker{}, 0, time.Duration(0), workload.AnswerTime{}
	cmd := e.maker("closed", "Clients that wait for each answer and think about it", m, func() (experiment.Stream, error) {
		if clients < 1 || clients > 1e6 {
			return nil, errors.New("--clients: give 1 to 1000000")
		}
		if err := checkAnswers(answer, think); err != nil {
			return nil, err
		}
		s, err := m.independent(workload.AtOnce(), nil)
		return workload.Assume(workload.Closed(s, clients, think, m.seed), answer), err
	})
	cmd.Long = `Write the requests of clients that wait for each answer and think about it, as if answers took the time given. What is written down
waits for nobody any more; for clients that wait for real answers, play any workload with 'whylate replay --clients'.`
	cmd.Flags().IntVar(&clients, "clients", 8, "how many there are")
	cmd.Flags().DurationVar(&think, "think", 5*time.Second, "mean time from an answer to the next request (exponentially distributed)")
	answerFlags(cmd, &answer)
	m.lengthFlags(cmd)
	return cmd
}

func (e *env) makeConversations() *cobra.Command {
	m, rate, cv, answer, o := &maker{}, 0.0, 0.0, workload.AnswerTime{}, workload.Conversation{}
	cmd := e.maker("conversations", "Conversations of several turns, each of which begins with all that was said", m, func() (experiment.Stream, error) {
		at, err := workload.Gamma(rate, cv, m.seed)
		if err != nil {
			return nil, err
		}
		if err := checkAnswers(answer, o.Think); err != nil {
			return nil, err
		}
		if o.Say, o.Answer, err = m.distributions(); err != nil {
			return nil, err
		}
		s, err := workload.Converse(at, o, m.span, m.seed)
		return workload.WithoutIDs(workload.Assume(s, answer)), err
	})
	rateFlag(cmd, &rate, "conversations that begin a second, on average")
	cvFlag(cmd, &cv, 1)
	cmd.Flags().IntVar(&o.Instructions, "instructions", 0, "tokens that all conversations begin with")
	cmd.Flags().Float64Var(&o.Turns, "turns", 5, "mean number of turns (geometrically distributed)")
	cmd.Flags().DurationVar(&o.Think, "think", 20*time.Second, "mean time from an answer to the next turn (exponentially distributed)")
	cmd.Flags().IntVar(&o.Most, "fit", 0, "a conversation ends before prompt and answer have more tokens than this together; 0 is no limit")
	answerFlags(cmd, &answer)
	m.partFlags(cmd, "tokens that a user adds in a turn", "tokens of an answer")
	return cmd
}

func (e *env) makeRetrieval() *cobra.Command {
	m, rate, cv, document, o := &maker{}, 0.0, 0.0, "", workload.Retrieval{}
	cmd := e.maker("retrieval", "Questions about documents that many requests share", m, func() (experiment.Stream, error) {
		at, err := workload.Gamma(rate, cv, m.seed)
		if err != nil {
			return nil, err
		}
		if o.Question, o.Output, err = m.distributions(); err != nil {
			return nil, err
		}
		if o.Length, err = workload.ParseDistribution(document); err != nil {
			return nil, fmt.Errorf("--document: %w", err)
		}
		return workload.Retrieve(at, o, m.seed)
	})
	rateFlag(cmd, &rate, "requests a second, on average")
	cvFlag(cmd, &cv, 1)
	cmd.Flags().IntVar(&o.Instructions, "instructions", 200, "tokens that all prompts begin with")
	cmd.Flags().IntVar(&o.Documents, "documents", 1000, "how many documents there are")
	cmd.Flags().StringVar(&document, "document", "p50=1000,p99=4000", "tokens of a document")
	cmd.Flags().IntVar(&o.PerRequest, "per-request", 2, "documents in a prompt")
	cmd.Flags().Float64Var(&o.Skew, "skew", 1, "how much more often the popular ones are asked about: the k-th in proportion to 1/k^skew, 0 is evenly")
	m.partFlags(cmd, "tokens of the question after the documents", "tokens of an answer")
	return cmd
}
