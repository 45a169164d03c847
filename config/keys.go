package config

import (
	"slices"
	"strings"
)

// Role is one of the two processes that read the file.
type Role uint8

const (
	Server Role = 1 << iota // whylate serve
	Agents                  // whylate agent
)

// Key declares one setting.
type Key struct {
	Name        string // dotted, as nested in the file: "listen.http"
	Default     string // as it would be written in the file; "" is none
	Doc         string // sentences; the first one is also the flag's help
	Least, Most string // bounds, as they would be written in the file; "" is none
	OneOf       []string
	For         Role

	kind     kind
	field    func(*Config) any // pointer to the field that holds it
	env      string            // where the variable's name is not made from Name
	fallback func(lookup) string
}

// Keys are all settings, in the order of the file and of docs/config.md.
func Keys() []Key { return slices.Clone(keys) }

var keys = slices.Concat(generalKeys, metricsKeys, objectiveKeys, scrapeKeys, identityKeys, otlpKeys, exportKeys, agentKeys)

var generalKeys = []Key{
	{Name: "listen.http", kind: address, Default: "127.0.0.1:7700", For: Server, field: func(c *Config) any { return &c.Listen.HTTP },
		Doc: "Address of the API, `/healthz`, `/readyz` and `/metrics`. Port 0 takes a free one; `off` listens on none."},
	{Name: "listen.agents", kind: address, Default: "127.0.0.1:7701", For: Server, field: func(c *Config) any { return &c.Listen.Agents },
		Doc: "Address that takes the streams of agents. Port 0 takes a free one; `off` listens on none."},
	{Name: "listen.unix", kind: path, For: Server, field: func(c *Config) any { return &c.Listen.Unix },
		Doc: "Unix socket that takes the streams of agents on this host, beside `listen.agents`. Empty: none."},
	{Name: "listen.agents_tokens", kind: secretPath, For: Server, field: func(c *Config) any { return &c.Listen.AgentsTokens },
		Doc: "File with the bearer tokens that agents may show, one a line. Taken up within two seconds when it changes, and the connections of tokens that are gone are ended. Empty: whoever reaches the address may send."},

	{Name: "tls.cert", kind: path, For: Server, field: func(c *Config) any { return &c.TLS.Cert },
		Doc: "PEM file with the server's certificate and its chain, for both addresses. Taken up with `tls.key` within two seconds when the files change. Empty: no TLS."},
	{Name: "tls.key", kind: secretPath, For: Server, field: func(c *Config) any { return &c.TLS.Key },
		Doc: "PEM file with the private key of `tls.cert`."},
	{Name: "tls.client_ca", kind: path, For: Server, field: func(c *Config) any { return &c.TLS.ClientCA },
		Doc: "PEM file with the authorities that must have signed a client's certificate. Taken up within two seconds when it changes. Empty: none is asked for."},

	{Name: "tokens_file", kind: secretPath, For: Server, field: func(c *Config) any { return &c.TokensFile },
		Doc: "File with the bearer tokens of people and programs that ask, a line each: its role, viewer or operator, and the token. Taken up within two seconds when it changes, and the event streams of tokens that are gone are ended. Empty: whoever reaches the address may do everything."},

	{Name: "data_dir", kind: path, Default: "~/.local/share/whylate", For: Server, field: func(c *Config) any { return &c.DataDir }, fallback: below("XDG_DATA_HOME", "whylate"),
		Doc: "Directory of the write-ahead log and the sealed periods; one server at a time. Where `XDG_DATA_HOME` is set, the default is `whylate` below it; without a home, `/var/lib/whylate`."},

	{Name: "rings.dir", kind: path, Default: "/dev/shm/whylate", For: Server | Agents, field: func(c *Config) any { return &c.Rings.Dir }, env: "WHYLATE_RING_DIR",
		Doc: "Directory in which the probes of this host keep their rings. The probe reads the same variable."},
	{Name: "rings.follow", kind: boolean, Default: "true", For: Server, field: func(c *Config) any { return &c.Rings.Follow },
		Doc: "Whether the server reads this host's rings itself. Switch it off where an agent does."},

	{Name: "gpu.sample", kind: boolean, Default: "false", For: Server | Agents, field: func(c *Config) any { return &c.GPU.Sample },
		Doc: "Whether this host's GPUs are sampled: by the agent, or by a server that reads this host's rings itself. See gpu.md for what must be installed or mounted."},
	{Name: "gpu.every", kind: duration, Default: "1s", Least: "100ms", Most: "1m", For: Server | Agents, field: func(c *Config) any { return &c.GPU.Every },
		Doc: "How often each GPU is read. No claim about a GPU is finer than this."},
	{Name: "gpu.helper", kind: path, For: Server | Agents, field: func(c *Config) any { return &c.GPU.Helper },
		Doc: "The program whylate-gpu, which reads GPUs through the driver's library. Empty: beside the program that runs, else on the PATH."},
	{Name: "gpu.nvidia_smi", kind: path, For: Server | Agents, field: func(c *Config) any { return &c.GPU.SMI },
		Doc: "The program nvidia-smi, which is asked where whylate-gpu cannot be. Empty: on the PATH."},

	{Name: "log.level", kind: word, Default: "info", OneOf: []string{"debug", "info", "warn", "error"}, For: Server | Agents, field: func(c *Config) any { return &c.Log.Level },
		Doc: "The least severe that is logged, to standard error."},
	{Name: "log.format", kind: word, Default: "text", OneOf: []string{"text", "json"}, For: Server | Agents, field: func(c *Config) any { return &c.Log.Format },
		Doc: "Lines of key=value, or of JSON."},

	{Name: "store.seal_every", kind: duration, Default: "2m", Least: "1s", Most: "24h", For: Server, field: func(c *Config) any { return &c.Store.SealEvery },
		Doc: "How often what has ended is written as a sealed period, and its part of the log forgotten. Longer: fewer and larger files, more memory, a longer recovery."},
	{Name: "store.hot_period", kind: duration, Default: "5m", Least: "1s", Most: "24h", For: Server, field: func(c *Config) any { return &c.Store.HotPeriod },
		Doc: "How long what has ended stays in memory before it may be sealed. Longer: more memory."},
	{Name: "store.hot_iterations", kind: count, Default: "4000000", Least: "1000", Most: "1000000000", For: Server, field: func(c *Config) any { return &c.Store.HotIterations },
		Doc: "How many iterations of all engines together stay in memory before they are sealed, whatever `store.hot_period` says. A million takes 0.2 GB, and what lived in them comes on top."},
	{Name: "store.retention.iterations", kind: retention, Default: "7d", Least: "1m", For: Server, field: func(c *Config) any { return &c.Store.Retention.Iterations },
		Doc: "How long iterations and their members are kept. Without them a request still has its account, but not who sat beside it."},
	{Name: "store.retention.requests", kind: retention, Default: "30d", Least: "1m", For: Server, field: func(c *Config) any { return &c.Store.Retention.Requests },
		Doc: "How long requests with their accounts, and what is known to be missing, are kept."},
	{Name: "store.wal.segment_bytes", kind: size, Default: "64MiB", Least: "1MiB", Most: "4GiB", For: Server, field: func(c *Config) any { return &c.Store.WAL.SegmentBytes },
		Doc: "Size of one file of the write-ahead log. The log is forgotten in whole files."},

	{Name: "spans.quiet", kind: duration, Default: "30s", Least: "1s", Most: "1h", For: Server, field: func(c *Config) any { return &c.Spans.Quiet },
		Doc: "How long after the last span of a trace its calls may be sealed. Longer than exporters wait between two exports: what comes later is told apart from its call."},
	{Name: "spans.age", kind: duration, Default: "5m", Least: "1s", Most: "24h", For: Server, field: func(c *Config) any { return &c.Spans.Age },
		Doc: "How long after the first span of a trace its calls are sealed, whether or not more come."},
	{Name: "spans.in_memory", kind: count, Default: "500000", Least: "1000", Most: "100000000", For: Server, field: func(c *Config) any { return &c.Spans.InMemory },
		Doc: "How many spans stay in memory before the traces that were quiet longest are sealed, whatever `spans.quiet` says. A million takes about 0.7 GB; above twice as many exporters are told to send again later."},

	{Name: "limits.connections", kind: count, Default: "1024", Least: "1", Most: "1000000", For: Server, field: func(c *Config) any { return &c.Limits.Connections },
		Doc: "How many connections are open at once, on all addresses together. More are refused."},
	{Name: "limits.in_flight_bytes", kind: size, Default: "256MiB", Least: "1MiB", For: Server, field: func(c *Config) any { return &c.Limits.InFlightBytes },
		Doc: "How much may have been received and not yet acknowledged. Above it senders are told to retry, and a gap is recorded for what they drop."},
	{Name: "limits.request_body", kind: size, Default: "64GiB", Least: "1KiB", For: Server, field: func(c *Config) any { return &c.Limits.RequestBody },
		Doc: "The largest body of an HTTP request, which is an import. It is taken in as it comes, so it may be larger than memory."},
}

// agentKeys are the settings of 'whylate agent'.
var agentKeys = []Key{
	{Name: "agent.server", kind: target, Default: "tcp://127.0.0.1:7701", For: Agents, field: func(c *Config) any { return &c.Agent.Server },
		Doc: "Where the server takes streams. Without `tls://` or `tcp://` it is TLS, unless the host is this one."},
	{Name: "agent.token_file", kind: secretPath, For: Agents, field: func(c *Config) any { return &c.Agent.TokenFile },
		Doc: "File with the bearer token that the server knows this agent by. Taken up for the next connection when it changes. Empty: none is sent."},
	{Name: "agent.tls.ca", kind: path, For: Agents, field: func(c *Config) any { return &c.Agent.TLS.CA },
		Doc: "PEM file with the authorities that may have signed the server's certificate. Taken up for the next connection when it changes. Empty: those of the system."},
	{Name: "agent.tls.cert", kind: path, For: Agents, field: func(c *Config) any { return &c.Agent.TLS.Cert },
		Doc: "PEM file with the agent's own certificate, for a server that has `tls.client_ca`. Taken up with `agent.tls.key` for the next connection when the files change."},
	{Name: "agent.tls.key", kind: secretPath, For: Agents, field: func(c *Config) any { return &c.Agent.TLS.Key },
		Doc: "PEM file with the private key of `agent.tls.cert`."},
	{Name: "agent.tls.name", kind: text, For: Agents, field: func(c *Config) any { return &c.Agent.TLS.Name },
		Doc: "The name that the server's certificate must carry. Empty: the host of `agent.server`."},
	{Name: "agent.spool_dir", kind: path, Default: "~/.local/state/whylate-agent", For: Agents, field: func(c *Config) any { return &c.Agent.SpoolDir }, fallback: below("XDG_STATE_HOME", "whylate-agent"),
		Doc: "Directory that keeps what the server has not acknowledged. Where `XDG_STATE_HOME` is set, the default is `whylate-agent` below it; without a home, `/var/lib/whylate-agent`."},
	{Name: "agent.spool_bytes", kind: size, Default: "1GiB", Least: "1MiB", For: Agents, field: func(c *Config) any { return &c.Agent.SpoolBytes },
		Doc: "The most that the spool may take. Full: its oldest is dropped, and a gap is recorded."},
	{Name: "agent.key_file", kind: secretPath, For: Agents, field: func(c *Config) any { return &c.Agent.KeyFile },
		Doc: "File with the secret that block hashes are keyed with before they leave the host: 64 hex digits, as of `openssl rand -hex 32`. The agent makes it where it is not there. Hosts with the same secret can be compared. Empty: `key` in `agent.spool_dir`."},
}

// Env is the environment variable that sets the key.
func (k *Key) Env() string {
	if k.env != "" {
		return k.env
	}
	return "WHYLATE_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag is the name, without dashes, of the flag that sets the key in the process of that role. The agent's own keys go
// without their first word there: --server, not --agent-server.
func (k *Key) Flag(role Role) string {
	name := k.Name
	if role == Agents {
		name = strings.TrimPrefix(name, "agent.")
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(name)
}

// Type is the kind of value, a word that docs/config.md explains.
func (k *Key) Type() string { return k.kind.name }

// Secret reports whether the key names a file that holds a secret.
func (k *Key) Secret() bool { return k.kind.secret }

// below is a default that follows a variable of the XDG base directories.
func below(variable, name string) func(lookup) string {
	return func(env lookup) string {
		if dir, ok := env(variable); ok && strings.HasPrefix(dir, "/") {
			return dir + "/" + name
		}
		return ""
	}
}

// lookup is os.LookupEnv.
type lookup func(name string) (string, bool)

func find(name string) *Key {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i]
		}
	}
	return nil
}
