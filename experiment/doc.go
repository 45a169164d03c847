// Package experiment holds what a controlled comparison is made of. So far that is the workload: when requests arrive, how
// long they are and which prefixes they share. A workload carries no content, so it may leave the house; a [Prompter] makes
// prompts of exactly the wanted lengths and shared prefixes out of it.
//
// A workload file is JSON Lines, one request a line, in order of time:
//
//	{"at_ns":0,"prompt_tokens":680,"output_tokens":25,"prefix":[[1,512],[2,128]],"class":"shared"}
//
// Three fields are required, all others may be absent or null:
//
//	at_ns                when it is sent, ns since the workload's own zero
//	prompt_tokens        length of the prompt
//	output_tokens        most tokens to answer with
//	prefix               [[hash, tokens] …]: runs of tokens that begin the prompt; equal hashes are equal tokens
//	n                    sequences asked for (1)
//	priority             for an engine that schedules by priority: the lower, the earlier (0)
//	logprobs             log-probabilities a token, −1 for the whole vocabulary (none)
//	prompt_logprobs      the same for the tokens of the prompt (none)
//	cancel_after_ns      the client hangs up this long after sending (never)
//	cancel_after_chunks  the client hangs up after this many chunks of output (never)
//	class                a name for this kind of request
//	id                   the X-Request-Id to send, unique in the file
//	traceparent          true, false, or the header's value to send (the replay decides)
//	ignore_eos           answer to the full length (true)
//
// A hash is a whole number below 2⁵³, or a string of 16 hexadecimal digits, since not every JSON library reads 64 bits. An
// unknown key is refused by name.
//
// A workload is read, made, changed and played as a [Stream], one request after the other, so its length does not matter. What
// waits for answers before it goes on is a [Source].
package experiment
