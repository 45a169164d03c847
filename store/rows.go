package store

import "github.com/whylate/whylate/ledger"

// The rows of the sealed tables. Their struct tags are the one description of the tables: `parquet` gives a column's name and
// encoding, `unit` and `doc` what it means. [Tables], the Parquet schema and docs/tables.md follow from them.
//
// A column named …_unix_ns is a time, 0 = not known. "Row" columns are row numbers, from 0, in another table of the same file
// set, −1 = none. The order of the fields is the order of the columns.

// EngineRow is one stretch of iterations of one engine incarnation, as it was sealed, with all that is needed to read it.
type EngineRow struct {
	Engine       string `parquet:"engine,dict" unit:"" doc:"deployment/replica/rank@incarnation in full; the key of every other table"`
	Deployment   string `parquet:"deployment,dict" unit:"" doc:"what is deployed"`
	Replica      string `parquet:"replica,dict" unit:"" doc:"which copy of it"`
	Rank         int32  `parquet:"rank" unit:"" doc:"data-parallel rank"`
	Incarnation  string `parquet:"incarnation,dict" unit:"" doc:"one start of the engine; iteration numbers belong to it"`
	Name         string `parquet:"name,dict" unit:"" doc:"the engine's software"`
	Version      string `parquet:"version,dict" unit:"" doc:"its version"`
	Producer     string `parquet:"producer,dict" unit:"" doc:"who recorded it, with version"`
	Depth        int32  `parquet:"depth" unit:"decisions" doc:"decisions that may be open at once"`
	Settings     string `parquet:"settings,dict" unit:"JSON" doc:"every setting that the scheduler's decisions depend on"`
	Capabilities string `parquet:"capabilities,dict" unit:"JSON" doc:"what this build of the engine can see"`
	ClockDomain  string `parquet:"clock_domain,dict" unit:"" doc:"clock that its times were taken with"`
	ClockOffset  int64  `parquet:"clock_offset_ns" unit:"ns" doc:"added to that clock's times to give Unix time"`
	ClockError   int64  `parquet:"clock_uncertainty_ns" unit:"ns" doc:"half the width of the interval in which the true offset lies"`
	First        int64  `parquet:"first_iteration" unit:"" doc:"first iteration of the stretch, 0 = none"`
	Last         int64  `parquet:"last_iteration" unit:"" doc:"last iteration of the stretch"`
	PreviousEnd  int64  `parquet:"previous_end_unix_ns" unit:"Unix ns" doc:"where the tile of the first iteration begins"`
	Began        int64  `parquet:"began_iteration" unit:"" doc:"first iteration ever recorded of this incarnation; 1 = from its start"`
	Model        string `parquet:"model,dict" unit:"JSON" doc:"the iteration-time model that the accounts were made with: coefficients in ns per unit of work, and its errors; empty = too few iterations to fit one"`
	Firsts       string `parquet:"firsts,dict" unit:"JSON" doc:"for each kind of work the first iteration of this incarnation that carried it"`
}

// IterationRow is one pass of a scheduler. Rows of one engine are dense: row k of a stretch is iteration first + k.
type IterationRow struct {
	Engine         string `parquet:"engine,dict" unit:"" doc:"which engine"`
	Iteration      int64  `parquet:"iteration,delta" unit:"" doc:"its number, from 1 in each incarnation"`
	Alias          int64  `parquet:"alias,delta" unit:"" doc:"the engine's own index, 0 = it has none"`
	End            int64  `parquet:"end_unix_ns,delta" unit:"Unix ns" doc:"the output was taken up; where the completion is missing, the next thing that is known"`
	Gap            int64  `parquet:"gap_ns,delta" unit:"ns" doc:"from the end of the iteration before to the start of this one: nothing ran. Start = end of the one before + gap; duration = end − start"`
	DecidedEarly   int64  `parquet:"decided_early_ns,delta" unit:"ns" doc:"how long before its start it was decided; more than 0 only where decisions overlap, and with a completion that is missing"`
	Schedule       int64  `parquet:"schedule_ns,delta" unit:"ns" doc:"how long the decision took"`
	Output         int64  `parquet:"output_ns,delta" unit:"ns" doc:"how long taking up the output took: end − completion"`
	Known          int32  `parquet:"known,dict" unit:"bits" doc:"which records were seen: 1 decision, 2 completion, 4 membership; times that were not seen are 0"`
	Tokens         int32  `parquet:"tokens,delta" unit:"tokens" doc:"scheduled"`
	Members        int32  `parquet:"members,delta" unit:"sequences" doc:"scheduled"`
	Running        int32  `parquet:"running,delta" unit:"sequences" doc:"length of the running list afterwards"`
	Waiting        int32  `parquet:"waiting,delta" unit:"sequences" doc:"waiting afterwards"`
	FreeBlocks     int32  `parquet:"free_blocks,delta" unit:"blocks" doc:"free KV blocks afterwards"`
	Emitted        int32  `parquet:"emitted_tokens,delta" unit:"tokens" doc:"emitted"`
	Discarded      int32  `parquet:"discarded_tokens,delta" unit:"tokens" doc:"computed and thrown away"`
	Stop           int32  `parquet:"stop,dict" unit:"reason" doc:"what ended admission (docs/formats/stream.md §2.2); 0 = nobody was left waiting"`
	Head           int32  `parquet:"head_sequence_row,delta" unit:"row" doc:"at whom admission stopped"`
	Need           int32  `parquet:"need_blocks,delta" unit:"blocks" doc:"KV blocks that the head needed"`
	Idle           int64  `parquet:"idle_ns,delta" unit:"ns" doc:"of the tile, beyond the gap, without any token scheduled"`
	Unknown        int64  `parquet:"unknown_ns,delta" unit:"ns" doc:"of the tile, of which a record is missing"`
	Worked         int32  `parquet:"worked,dict" unit:"" doc:"1 = its work is known and counted below; the work columns are the features of the iteration-time model"`
	MoreDecode     int64  `parquet:"more_decode_tokens,delta" unit:"tokens" doc:"scheduled in decode beyond one for each sequence. Prompt tokens computed, recompute included = tokens − decode_sequences − this, where worked is 1"`
	MorePrefill    int64  `parquet:"more_prefill_attention,delta" unit:"tokens²" doc:"twice Σ chunk × (context + chunk/2), beyond the square of the prompt tokens computed: 0 for one prompt that is computed whole"`
	DecodeSeqs     int64  `parquet:"decode_sequences,delta" unit:"sequences" doc:"in decode"`
	DecodeContext  int64  `parquet:"decode_context,delta" unit:"tokens" doc:"Σ context of the sequences in decode"`
	LogprobRows    int64  `parquet:"logprob_rows,delta" unit:"rows" doc:"sampled with logprobs"`
	PromptLogprobs int64  `parquet:"prompt_logprob_tokens,delta" unit:"tokens" doc:"prompt tokens with prompt_logprobs"`
	PenaltyRows    int64  `parquet:"penalty_rows,delta" unit:"rows" doc:"sampled with penalties"`
	GrammarRows    int64  `parquet:"grammar_rows,delta" unit:"rows" doc:"sampled with a grammar mask"`
}

// SequenceRow is one stream of tokens. A sequence that was there in these iterations and whose request is sealed in another
// period, or was not over, is a guest: it is here with what is known up to the last iteration, so that a period answers by itself.
type SequenceRow struct {
	Engine         string `parquet:"engine,dict" unit:"" doc:"which engine; empty = none took it up"`
	Guest          bool   `parquet:"guest" unit:"" doc:"its request is in another period"`
	Request        int32  `parquet:"request_row,delta" unit:"row" doc:"its request; −1 for a guest"`
	RequestName    string `parquet:"request_name,dict" unit:"" doc:"of a guest: the id by which answers call its request"`
	ID             string `parquet:"id,delta" unit:"" doc:"the engine's internal id. {} stands for the request's request_id where templates is set"`
	External       string `parquet:"external_id,dict" unit:"" doc:"the engine's id towards the client; {} as above"`
	Parent         string `parquet:"parent_id,dict" unit:"" doc:"internal id of the parent of n > 1; {} as above"`
	Templates      bool   `parquet:"templates" unit:"" doc:"{} in the ids stands for the request_id"`
	Index          int32  `parquet:"child_index,dict" unit:"" doc:"of n > 1"`
	N              int32  `parquet:"n,dict" unit:"sequences" doc:"of the parent; 1 = alone"`
	Prompt         int32  `parquet:"prompt_tokens,delta" unit:"tokens" doc:"of the prompt"`
	Max            int32  `parquet:"max_tokens,delta" unit:"tokens" doc:"output at most"`
	Output         int32  `parquet:"output_tokens,delta" unit:"tokens" doc:"emitted by the engine"`
	Cached         int32  `parquet:"cached_tokens,delta" unit:"tokens" doc:"of the prompt, from cache at first admission"`
	Hashes         int32  `parquet:"hashed_blocks,delta" unit:"blocks" doc:"full prompt blocks whose hashes were recorded"`
	Logprobs       int32  `parquet:"logprobs,dict" unit:"" doc:"asked for; −1 = none"`
	PromptLogprobs int32  `parquet:"prompt_logprobs,dict" unit:"" doc:"asked for; −1 = none"`
	Priority       int32  `parquet:"priority,dict" unit:"" doc:"the scheduler's"`
	Features       int32  `parquet:"features,dict" unit:"bits" doc:"1 penalties, 2 grammar, 4 adapter, 8 multimodal, 16 streaming session"`
	Queued         int64  `parquet:"queued_unix_ns,delta" unit:"Unix ns" doc:"the scheduler took it up"`
	Submitted      int64  `parquet:"submitted_unix_ns,delta" unit:"Unix ns" doc:"the front end handed it to the engine"`
	Arrived        int64  `parquet:"arrived_unix_ns,delta" unit:"Unix ns" doc:"it reached the engine process"`
	FirstToken     int64  `parquet:"first_token_unix_ns,delta" unit:"Unix ns" doc:"end of the iteration that emitted its first token"`
	LastToken      int64  `parquet:"last_token_unix_ns,delta" unit:"Unix ns" doc:"end of the iteration that emitted its last token"`
	Finished       int64  `parquet:"finished_unix_ns,delta" unit:"Unix ns" doc:"the engine's end; 0 = a guest that was not over"`
	Answered       int64  `parquet:"answered_unix_ns,delta" unit:"Unix ns" doc:"the front end's end"`
	Delivered      int64  `parquet:"delivered_unix_ns,delta" unit:"Unix ns" doc:"its last output was handed to the waiting stream"`
	Reason         int32  `parquet:"finish_reason,dict" unit:"reason" doc:"docs/formats/stream.md §2.1"`
	StopString     bool   `parquet:"stop_string" unit:"" doc:"ended by a stop string, which only the front end sees"`
	Join           int64  `parquet:"join_iteration,delta" unit:"" doc:"first iteration it was a member of, 0 = never"`
	Leave          int64  `parquet:"leave_iteration,delta" unit:"" doc:"last one"`
	FirstEmit      int64  `parquet:"first_emit_iteration,delta" unit:"" doc:"that emitted its first token"`
	LastEmit       int64  `parquet:"last_emit_iteration,delta" unit:"" doc:"that emitted its last token"`
	FirstUncertain bool   `parquet:"first_token_uncertain" unit:"" doc:"that completion is missing, and the time is the next thing known"`
	From           int64  `parquet:"first_iteration,delta" unit:"" doc:"first iteration that it was there in, as a member or waiting, 0 = none"`
	To             int64  `parquet:"last_iteration,delta" unit:"" doc:"last one"`
	StintRow       int32  `parquet:"stint_row,delta" unit:"row" doc:"its first stint"`
	Stints         int32  `parquet:"stints,delta" unit:"rows" doc:"how many follow there"`
	SkipRow        int32  `parquet:"skip_row,delta" unit:"row" doc:"its first skip"`
	Skips          int32  `parquet:"skips,delta" unit:"rows" doc:"how many follow there"`
	Usual          bool   `parquet:"usual" unit:"" doc:"its stints are no rows: all of its prompt that was not cached in its first iteration, then one token in each up to leave_iteration; never set in an export"`
}

// StintRow is an unbroken run of iterations in which a sequence was scheduled in one phase.
type StintRow struct {
	Engine     string  `parquet:"engine,dict" unit:"" doc:"which engine"`
	Sequence   int32   `parquet:"sequence_row,delta" unit:"row" doc:"whose"`
	Phase      int32   `parquet:"phase,dict" unit:"" doc:"1 prefill, 2 decode, 3 recompute"`
	First      int64   `parquet:"first_iteration,delta" unit:"" doc:"first iteration"`
	Iterations int32   `parquet:"iterations,delta" unit:"iterations" doc:"how many"`
	Before     int32   `parquet:"before_tokens,delta" unit:"tokens" doc:"computed before the first iteration"`
	Final      bool    `parquet:"final" unit:"" doc:"its last iteration reached the end of the tokens then known, and so emitted one"`
	Tokens     []int32 `parquet:"tokens,list" parquet-element:",delta" unit:"tokens" doc:"scheduled per iteration; empty = 1 each"`
	Drafts     []int32 `parquet:"draft_tokens,list" parquet-element:",delta" unit:"tokens" doc:"of the tokens, speculative ones per iteration; where the list ends there are no more. Empty before format 3"`
	Rejected   []int32 `parquet:"rejected_tokens,list" parquet-element:",delta" unit:"tokens" doc:"of the drafts, those that the model did not agree with, per iteration as above: they are not among the tokens computed"`
}

// SkipRow is an unbroken run of iterations in which a live sequence was not scheduled.
type SkipRow struct {
	Engine     string `parquet:"engine,dict" unit:"" doc:"which engine"`
	Sequence   int32  `parquet:"sequence_row,delta" unit:"row" doc:"whose"`
	First      int64  `parquet:"first_iteration,delta" unit:"" doc:"first iteration"`
	Iterations int32  `parquet:"iterations,delta" unit:"iterations" doc:"how many"`
	Reason     int32  `parquet:"reason,dict" unit:"reason" doc:"docs/formats/stream.md §2.2; 0 = what each iteration's stop says: that reason, other if it is 0, and head of line where it is KV blocks and another stands at the head"`
	Code       int32  `parquet:"code,dict" unit:"" doc:"with other: the producer's code"`
	Head       int32  `parquet:"head_sequence_row,delta" unit:"row" doc:"with head of line: who stood there"`
	Away       bool   `parquet:"away" unit:"" doc:"it had been preempted and had not come back"`
}

// PreemptionRow is a running sequence losing its blocks.
type PreemptionRow struct {
	Engine     string `parquet:"engine,dict" unit:"" doc:"which engine"`
	Iteration  int64  `parquet:"iteration,delta" unit:"" doc:"the decision in which, or before which, it happened"`
	At         int64  `parquet:"at_unix_ns,delta" unit:"Unix ns" doc:"when"`
	Victim     int32  `parquet:"victim_sequence_row,delta" unit:"row" doc:"who lost them"`
	Preemptor  int32  `parquet:"preemptor_sequence_row,delta" unit:"row" doc:"for whom; −1 = administrative, or not known"`
	Lost       int32  `parquet:"lost_tokens,delta" unit:"tokens" doc:"computed, thrown away"`
	Output     int32  `parquet:"output_tokens,delta" unit:"tokens" doc:"emitted until then"`
	FreeBlocks int32  `parquet:"free_blocks,delta" unit:"blocks" doc:"before"`
	Blocks     int32  `parquet:"blocks,delta" unit:"blocks" doc:"held by the victim"`
	Reset      bool   `parquet:"reset" unit:"" doc:"an administrative reset of the cache, not memory"`
}

// HoldingRow is one holder of the KV pool in a report of who held it while admission was stopped for it.
type HoldingRow struct {
	Engine    string  `parquet:"engine,dict" unit:"" doc:"which engine"`
	Iteration int64   `parquet:"iteration,delta" unit:"" doc:"of the report"`
	Head      int32   `parquet:"head_sequence_row,delta" unit:"row" doc:"who could not be admitted"`
	Need      int32   `parquet:"need_blocks,delta" unit:"blocks" doc:"that it needed"`
	Free      int32   `parquet:"free_blocks,delta" unit:"blocks" doc:"that there were"`
	Holder    int32   `parquet:"holder_sequence_row,delta" unit:"row" doc:"who held; −1 = a report without holders"`
	Blocks    int32   `parquet:"blocks,delta" unit:"blocks" doc:"held"`
	Weight    float32 `parquet:"weight_blocks,dict" unit:"blocks" doc:"held, a shared block counted 1/references"`
}

// ExecutionRow is what the ranks said of the execution of one iteration's batch, put together: a batch is as slow as its slowest rank.
type ExecutionRow struct {
	Engine    string `parquet:"engine,dict" unit:"" doc:"which engine"`
	Iteration int64  `parquet:"iteration,delta" unit:"" doc:"whose batch"`
	Ranks     int32  `parquet:"ranks,dict" unit:"ranks" doc:"that were seen"`
	Slowest   int32  `parquet:"slowest_rank,dict" unit:"" doc:"the one with the longest host time"`
	Host      int64  `parquet:"host_ns,delta" unit:"ns" doc:"longest time of a rank from entry to return"`
	Device    int64  `parquet:"device_ns,delta" unit:"ns" doc:"longest time of a device's own work; 0 = not measured"`
	Wait      int64  `parquet:"collective_wait_ns,delta" unit:"ns" doc:"longest wait in collectives; 0 = none, or not measured"`
	Peak      int64  `parquet:"peak_memory_bytes,delta" unit:"B" doc:"most memory that a rank had ever allocated; 0 = not measured"`
	Padded    int32  `parquet:"padded_tokens,delta" unit:"tokens" doc:"size of the batch with its padding"`
	Graph     int32  `parquet:"graph_mode,dict" unit:"" doc:"how the batch was launched: 0 unknown, 1 none, 2 piecewise, 3 full"`
	Eager     bool   `parquet:"eager_fallback" unit:"" doc:"there are graphs, and some rank ran without"`
}

// EvictionRow is blocks of the prefix cache that were given up for others.
type EvictionRow struct {
	Engine    string `parquet:"engine,dict" unit:"" doc:"which engine"`
	Iteration int64  `parquet:"iteration,delta" unit:"" doc:"up to which they were counted: those of up to 16 decisions are told together"`
	At        int64  `parquet:"at_unix_ns,delta" unit:"Unix ns" doc:"when that was decided"`
	LastUser  int32  `parquet:"last_user_sequence_row,delta" unit:"row" doc:"who had used them last; −1 = not known"`
	Blocks    int32  `parquet:"blocks,delta" unit:"blocks" doc:"how many"`
}

// RequestRow is one request, with the sums of its account: enough for every list.
type RequestRow struct {
	Engine       string  `parquet:"engine,dict" unit:"" doc:"which engine served it; empty = none"`
	From         int64   `parquet:"from_unix_ns,delta" unit:"Unix ns" doc:"where its account begins"`
	E2E          int64   `parquet:"e2e_ns,delta" unit:"ns" doc:"length of its account: the sum of the nine parts"`
	TTFT         int64   `parquet:"ttft_ns,delta" unit:"ns" doc:"to the first token; 0 = none"`
	TTFTEnds     string  `parquet:"ttft_ends,dict" unit:"" doc:"the moment that ends it"`
	TPOT         int64   `parquet:"tpot_ns,delta" unit:"ns" doc:"per output token after the first; 0 = fewer than two"`
	Gateway      int64   `parquet:"gateway_ns,delta" unit:"ns" doc:"client accepted – front end received"`
	Frontend     int64   `parquet:"frontend_ns,delta" unit:"ns" doc:"front end received – reached the engine process"`
	Inbox        int64   `parquet:"inbox_ns,delta" unit:"ns" doc:"reached the engine process – taken up by the scheduler"`
	Queue        int64   `parquet:"queue_ns,delta" unit:"ns" doc:"queued – first scheduled"`
	Prefill      int64   `parquet:"prefill_ns,delta" unit:"ns" doc:"first scheduled – first token"`
	Decode       int64   `parquet:"decode_ns,delta" unit:"ns" doc:"first token – last token"`
	Transfer     int64   `parquet:"transfer_ns,delta" unit:"ns" doc:"KV hand-over between legs"`
	Stream       int64   `parquet:"stream_ns,delta" unit:"ns" doc:"last token emitted – last byte flushed"`
	Unexplained  int64   `parquet:"unexplained_ns,delta" unit:"ns" doc:"the rest"`
	Seen         int32   `parquet:"seen_parts,dict" unit:"bits" doc:"parts that a source saw, 1 = gateway, 2 = frontend and so on in order; the 0 of the others is no measurement"`
	State        string  `parquet:"state,dict" unit:"" doc:"of the account when it was sealed"`
	Prompt       int32   `parquet:"prompt_tokens,delta" unit:"tokens" doc:"of the longest prompt of its sequences"`
	Cached       int32   `parquet:"cached_tokens,delta" unit:"tokens" doc:"of it, from cache"`
	Output       int32   `parquet:"output_tokens,delta" unit:"tokens" doc:"of all sequences"`
	TailOutput   int32   `parquet:"tail_output_tokens,delta" unit:"tokens" doc:"of the sequence that TPOT is of"`
	Preemptions  int32   `parquet:"preemptions,delta" unit:"" doc:"of all sequences"`
	Reason       int32   `parquet:"finish_reason,dict" unit:"reason" doc:"of the sequence that ended last (docs/formats/stream.md §2.1)"`
	RequestID    string  `parquet:"request_id,delta" unit:"" doc:"X-Request-Id"`
	ResponseID   string  `parquet:"response_id,dict" unit:"" doc:"id in the response body; {} stands for request_id where templates is set"`
	TraceID      string  `parquet:"trace_id,delta" unit:"" doc:"from traceparent"`
	TraceParent  string  `parquet:"traceparent,delta" unit:"" doc:"{} stands for trace_id where templates is set"`
	Templates    bool    `parquet:"templates" unit:"" doc:"{} in response_id and traceparent is to be replaced"`
	Path         string  `parquet:"path,dict" unit:"" doc:"of the HTTP request, without its query"`
	Class        string  `parquet:"class,dict" unit:"" doc:"the workload's class, where the client recorded it"`
	Received     int64   `parquet:"received_unix_ns,delta" unit:"Unix ns" doc:"the front end accepted it"`
	FirstByte    int64   `parquet:"first_byte_unix_ns,delta" unit:"Unix ns" doc:"of the body was given to the server"`
	LastByte     int64   `parquet:"last_byte_unix_ns,delta" unit:"Unix ns" doc:"the exchange was over"`
	Disconnect   int64   `parquet:"disconnect_unix_ns,delta" unit:"Unix ns" doc:"the front end saw the client go"`
	Status       int32   `parquet:"status,dict" unit:"" doc:"HTTP status"`
	End          int32   `parquet:"end,dict" unit:"" doc:"0 unknown, 1 complete, 2 client disconnected, 3 application error"`
	Chunks       int32   `parquet:"chunks,delta" unit:"" doc:"parts that the body was sent in"`
	Bytes        int64   `parquet:"bytes,delta" unit:"B" doc:"of the body"`
	SendWait     int64   `parquet:"send_wait_ns,delta" unit:"ns" doc:"spent inside send: a slow client"`
	ClockDomain  string  `parquet:"clock_domain,dict" unit:"" doc:"the front end's clock"`
	ClockOffset  int64   `parquet:"clock_offset_ns,delta" unit:"ns" doc:"its offset to Unix time"`
	ClockError   int64   `parquet:"clock_uncertainty_ns,delta" unit:"ns" doc:"of that offset"`
	Stretch      int32   `parquet:"engine_row,delta" unit:"row" doc:"the stretch it was sealed with: the model of its account"`
	Join         int64   `parquet:"join_iteration,delta" unit:"" doc:"first iteration that a sequence of it was a member of, 0 = none"`
	Leave        int64   `parquet:"leave_iteration,delta" unit:"" doc:"last one"`
	First        int64   `parquet:"first_iteration,delta" unit:"" doc:"first iteration that matters to it: the one that ran when it reached the engine"`
	Last         int64   `parquet:"last_iteration,delta" unit:"" doc:"last one"`
	SequenceRows []int32 `parquet:"sequence_rows,list" parquet-element:",delta" unit:"row" doc:"its sequences, in order"`
	ClientRow    int32   `parquet:"client_row,delta" unit:"row" doc:"its first client's view"`
	Clients      int32   `parquet:"clients,delta" unit:"rows" doc:"how many follow there"`
	Tenant       string  `parquet:"tenant_label,dict" unit:"" doc:"keyed hash of whose it is, 16 hexadecimal digits; empty = not said, or sealed before format 3"`
	ClassLabel   string  `parquet:"class_label,dict" unit:"" doc:"keyed hash of its class, as above"`
	Route        string  `parquet:"route_label,dict" unit:"" doc:"keyed hash of its route, as above"`
	Level        int32   `parquet:"level,dict" unit:"" doc:"1 = told by spans alone, see calls; 0 = by the front end and the scheduler, or sealed before format 4"`
	Threshold    int64   `parquet:"threshold,delta" unit:"" doc:"of level 1: it was kept with probability 1 − threshold / 2^56 and stands for the inverse of that; −1 = not said, denominator unknown"`
}

// CallRow is one model call as spans of any producer tell it: level L1. Its request row has ids, times, sums of parts and tokens.
type CallRow struct {
	Request    int32    `parquet:"request_row,delta" unit:"row" doc:"its request, with trace id, start, E2E, TTFT and sums"`
	Batch      int64    `parquet:"span_batch,delta" unit:"" doc:"batches of the log of spans up to this one were looked at"`
	Standing   int32    `parquet:"kept_as,dict" unit:"" doc:"0 a request of its own, 1 another view of a request that the ledger has, 2 an amendment: spans that came after their call was sealed; 1 and 2 are counted in no list"`
	Producer   string   `parquet:"producer,dict" unit:"" doc:"instrumentation that made the innermost span, else its service"`
	Version    string   `parquet:"producer_version,dict" unit:"" doc:"its version, as it says"`
	Shapes     []string `parquet:"conventions,list" parquet-element:",dict" unit:"" doc:"families and generations of names that its spans use"`
	Operation  string   `parquet:"operation,dict" unit:"" doc:"chat, text_completion …; empty = not said"`
	Provider   string   `parquet:"provider,dict" unit:"" doc:"as its spans name it"`
	Requested  string   `parquet:"requested_model,dict" unit:"" doc:"model that was asked for"`
	Served     string   `parquet:"served_model,dict" unit:"" doc:"model that answered, where that is said"`
	Outcome    string   `parquet:"outcome,dict" unit:"" doc:"complete, aborted, failed, incomplete"`
	Why        string   `parquet:"outcome_why,dict" unit:"" doc:"of one that is not complete"`
	Finish     string   `parquet:"finish_reason,dict" unit:"" doc:"as its spans say it; empty = unknown"`
	Input      int64    `parquet:"input_tokens,delta" unit:"tokens" doc:"−1 = unknown"`
	InputFrom  string   `parquet:"input_from,dict" unit:"" doc:"whose word that is; of an unknown count, why"`
	InputViews int32    `parquet:"input_views,dict" unit:"" doc:"views that say something about it; they are not added up"`
	Output     int64    `parquet:"output_tokens,delta" unit:"tokens" doc:"−1 = unknown"`
	OutputFrom string   `parquet:"output_from,dict" unit:"" doc:"as input_from"`
	Cached     int64    `parquet:"cached_tokens,delta" unit:"tokens" doc:"−1 = unknown"`
	CachedFrom string   `parquet:"cached_from,dict" unit:"" doc:"as input_from"`
	Reasoning  int64    `parquet:"reasoning_tokens,delta" unit:"tokens" doc:"−1 = unknown"`
	Sequences  int32    `parquet:"sequences,dict" unit:"" doc:"engine spans side by side: n > 1"`
	Legs       int32    `parquet:"legs,dict" unit:"" doc:"engine spans one after the other, on different engines"`
	Attempts   int32    `parquet:"attempts,dict" unit:"" doc:"of which all but the last failed"`
	E2EWhy     string   `parquet:"e2e_unknown,dict" unit:"" doc:"why its duration is unknown; empty = it is known"`
	Whose      int32    `parquet:"whose_span,dict" unit:"" doc:"its span, from 0, whose duration is taken as E2E; −1 = none"`
	Client     int64    `parquet:"client_ns,delta" unit:"ns" doc:"as its client waited; −1 = unknown"`
	ClientWhy  string   `parquet:"client_unknown,dict" unit:"" doc:"why that is unknown"`
	Server     int64    `parquet:"server_ns,delta" unit:"ns" doc:"the innermost span's own duration; −1 = unknown"`
	FirstNS    []int64  `parquet:"first_ns,list" parquet-element:",delta" unit:"ns" doc:"measurements of the time to the first token or chunk; different quantities that are not merged"`
	FirstFrom  []string `parquet:"first_from,list" parquet-element:",dict" unit:"" doc:"where each begins"`
	FirstTo    []string `parquet:"first_to,list" parquet-element:",dict" unit:"" doc:"where each ends"`
	FirstBy    []string `parquet:"first_by,list" parquet-element:",dict" unit:"" doc:"who says so"`
	FirstHow   []string `parquet:"first_standing,list" parquet-element:",dict" unit:"" doc:"measured or inferred"`
	Network    int64    `parquet:"network_ns,delta" unit:"ns" doc:"that a client waited beyond its server's own time; −1 = no client and server were seen apart"`
	SendLow    int64    `parquet:"send_low_ns,delta" unit:"ns" doc:"least of it before the server, by both clocks; −1 = not bounded"`
	SendHigh   int64    `parquet:"send_high_ns,delta" unit:"ns" doc:"most of it before the server"`
	ClockOuter string   `parquet:"outer_clock,dict" unit:"" doc:"the outermost span's clock, where two were compared"`
	ClockInner string   `parquet:"inner_clock,dict" unit:"" doc:"the server's clock"`
	ClockLow   int64    `parquet:"clock_low_ns,delta" unit:"ns" doc:"least that is to be added to times of the inner clock"`
	ClockHigh  int64    `parquet:"clock_high_ns,delta" unit:"ns" doc:"most"`
	ClockPairs int32    `parquet:"clock_pairs,delta" unit:"" doc:"client and server pairs that bound it"`
	Missing    string   `parquet:"missing_parent,dict" unit:"" doc:"id of a span that was named as its parent and never arrived"`
	Open       int32    `parquet:"open_spans,dict" unit:"" doc:"without a usable end"`
	Chunks     int32    `parquet:"chunk_spans,dict" unit:"" doc:"one a streamed chunk, collapsed"`
	Retracted  int32    `parquet:"retracted,dict" unit:"" doc:"times it lost its place in the engine"`
	Gap        int64    `parquet:"gap_ns,delta" unit:"ns" doc:"time of which telemetry is known to be missing"`
	GapWhy     string   `parquet:"gap_why,dict" unit:"" doc:"what is missing"`
	Contents   int32    `parquet:"content_attributes,dict" unit:"" doc:"with prompts and answers, which are not kept"`
	Content    int64    `parquet:"content_bytes,delta" unit:"B" doc:"of them"`
	Roles      []int32  `parquet:"content_roles,list" parquet-element:",dict" unit:"messages" doc:"of system, user, assistant, tool, others; empty = none"`
	Cut        int32    `parquet:"content_truncated,dict" unit:"" doc:"values that their sender cut"`
	Oversized  int32    `parquet:"content_oversized,dict" unit:"" doc:"values above the size limit, not looked into"`
	Notes      []string `parquet:"notes,list" parquet-element:",dict" unit:"" doc:"what else is to be known about it"`
	MoreNotes  int32    `parquet:"more_notes,dict" unit:"" doc:"that are not kept"`
	PartRow    int32    `parquet:"part_row,delta" unit:"row" doc:"its first part"`
	Parts      int32    `parquet:"parts,dict" unit:"rows" doc:"how many follow there"`
	SpanRow    int32    `parquet:"span_row,delta" unit:"row" doc:"its first span"`
	Spans      int32    `parquet:"spans,dict" unit:"rows" doc:"how many follow there"`
}

// CallPartRow is one part of a call's time. The parts of a call sum to its E2E exactly.
type CallPartRow struct {
	Call     int32  `parquet:"call_row,delta" unit:"row" doc:"of which call"`
	Part     string `parquet:"part,dict" unit:"" doc:"part of the account"`
	Name     string `parquet:"name,dict" unit:"" doc:"what it is"`
	NS       int64  `parquet:"ns,delta" unit:"ns" doc:"how long"`
	Standing string `parquet:"standing,dict" unit:"" doc:"measured, inferred, or unknown: time that nobody accounts for"`
}

// CallSpanRow is one view of a call: a span on the way of the request.
type CallSpanRow struct {
	Call     int32  `parquet:"call_row,delta" unit:"row" doc:"of which call; its spans come outermost first"`
	ID       int64  `parquet:"span_id,plain" unit:"" doc:"the span's id, its 8 bytes as a big-endian number"`
	Name     string `parquet:"name,dict" unit:"" doc:"its name, made safe"`
	Kind     int32  `parquet:"kind,dict" unit:"" doc:"0 unknown, 1 internal, 2 server, 3 client, 4 producer, 5 consumer"`
	Status   int32  `parquet:"status,dict" unit:"" doc:"0 unset, 1 ok, 2 failed, 3 cancelled"`
	HTTP     int32  `parquet:"http_status,dict" unit:"" doc:"HTTP status, 0 = not said"`
	Service  string `parquet:"service,dict" unit:"" doc:"whose"`
	Host     string `parquet:"host,dict" unit:"" doc:"on which host"`
	Pod      string `parquet:"pod,dict" unit:"" doc:"in which pod"`
	Scope    string `parquet:"scope,dict" unit:"" doc:"instrumentation"`
	Version  string `parquet:"scope_version,dict" unit:"" doc:"its version"`
	Start    int64  `parquet:"start_unix_ns,delta" unit:"Unix ns" doc:"on its own clock"`
	Duration int64  `parquet:"duration_ns,delta" unit:"ns" doc:"its length; negative = it has no usable end"`
	Shift    int64  `parquet:"shift_ns,delta" unit:"ns" doc:"that its times are corrected by where they are shown"`
	Half     int64  `parquet:"shift_uncertainty_ns,delta" unit:"ns" doc:"how far that may be wrong"`
	Marks    int32  `parquet:"marks,dict" unit:"bits" doc:"1 its place is inferred, 2 it was left open after the answer, 4 it ended at the first token, 8 it ended before what it enclosed"`
}

// ClientRow is one attempt as its client saw it.
type ClientRow struct {
	Request     int32   `parquet:"request_row,delta" unit:"row" doc:"of which request"`
	Attempt     int32   `parquet:"attempt,dict" unit:"" doc:"which one"`
	Planned     int64   `parquet:"planned_unix_ns,delta" unit:"Unix ns" doc:"the workload wanted it sent"`
	Sent        int64   `parquet:"sent_unix_ns,delta" unit:"Unix ns" doc:"it was sent"`
	First       int64   `parquet:"first_unix_ns,delta" unit:"Unix ns" doc:"first chunk"`
	Ended       int64   `parquet:"ended_unix_ns,delta" unit:"Unix ns" doc:"its end"`
	Status      int32   `parquet:"status,dict" unit:"" doc:"HTTP status"`
	Outcome     int32   `parquet:"outcome,dict" unit:"" doc:"0 complete, 1 HTTP error, 2 connection error, 3 cancelled by the client, 4 timed out"`
	Prompt      int32   `parquet:"prompt_tokens,delta" unit:"tokens" doc:"as reported to it, or counted"`
	Output      int32   `parquet:"output_tokens,delta" unit:"tokens" doc:"as reported to it, or counted"`
	Error       string  `parquet:"error,dict" unit:"" doc:"in its words"`
	ClockDomain string  `parquet:"clock_domain,dict" unit:"" doc:"its clock"`
	ClockOffset int64   `parquet:"clock_offset_ns,delta" unit:"ns" doc:"its offset to Unix time"`
	ClockError  int64   `parquet:"clock_uncertainty_ns,delta" unit:"ns" doc:"of that offset"`
	Gaps        []int32 `parquet:"gaps_us,list" parquet-element:",delta" unit:"µs" doc:"between chunks; the first counts from sent"`
}

// GapRow is what is known to be missing.
type GapRow struct {
	Engine   string `parquet:"engine,dict" unit:"" doc:"whose records; empty = of no engine"`
	Producer string `parquet:"producer,dict" unit:"" doc:"who: ring, stream or file"`
	First    int64  `parquet:"first_sequence,delta" unit:"" doc:"first missing sequence number, 0 = not known"`
	Last     int64  `parquet:"last_sequence,delta" unit:"" doc:"last one"`
	Count    int64  `parquet:"records,delta" unit:"records" doc:"how many; 0 = not known"`
	At       int64  `parquet:"at_unix_ns,delta" unit:"Unix ns" doc:"when"`
	Why      string `parquet:"why,dict" unit:"" doc:"in words"`
	Remedy   string `parquet:"remedy,dict" unit:"" doc:"what to do about it"`
}

// IDRow is an entry of the index by which a request is found under any of its ids.
type IDRow struct {
	ID      string `parquet:"id,delta" unit:"" doc:"the beginning of an id, as long as it takes to tell it from its neighbours in the order, and a little more"`
	Request int32  `parquet:"request_row,delta" unit:"row" doc:"a request that may have it"`
}

// Labels are the request's labels.
func (r *RequestRow) Labels() (l ledger.Labels) {
	for to, text := range map[*ledger.Label]string{&l.Tenant: r.Tenant, &l.Class: r.ClassLabel, &l.Route: r.Route} {
		_ = to.UnmarshalText([]byte(text)) // what is no label is none
	}
	return l
}
