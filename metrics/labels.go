package metrics

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// other stands for every value that is not kept.
const other = "other"

// trust is how much is believed of a label's values.
type trust uint8

const (
	unknown  trust = iota // not on the list: no value of it is kept
	ordinary              // a closed list of words at its producer; an id has no business there
	identity              // who or what is measured: it may look like an id, for it is one, of things that are few
	length                // how long something is, in the words of whylate's own histograms: what is no class of lengths might be the text itself
)

// known are the labels that are kept: those of targets and devices, those of producers that there is an adapter for, and the usual ones of
// exporters and servers. Labels of users, keys, sessions, requests, traces and paths are not on it, and must not come on it.
var known = func() map[string]trust {
	m := map[string]trust{}
	for _, n := range strings.Fields(identities + settings) {
		m[n], m["exported_"+n] = identity, identity
	}
	for _, n := range strings.Fields(ordinaries) {
		m[n], m["exported_"+n] = ordinary, ordinary
	}
	m["prompt"], m["output"] = length, length
	return m
}()

const identities = `
	job instance cluster environment env region zone availability_zone node node_name host hostname Hostname host_name
	namespace pod pod_name container container_name deployment statefulset daemonset replica replicaset workload service app component team team_alias
	k8s_cluster_name k8s_namespace_name k8s_pod_name k8s_node_name k8s_container_name k8s_deployment_name
	k8s_statefulset_name k8s_replicaset_name cloud_region cloud_availability_zone deployment_environment deployment_environment_name container_image_tag
	service_name service_namespace service_instance_id service_version
	UUID uuid gpu_uuid GPU_UUID gpu_id gpu_bus_id pci_bus_id device gpu GPU minor_number serial GPU_I_ID gpu_instance_id compute_instance_id
	engine engine_id engine_index worker worker_id dp_rank tp_rank pp_rank ep_rank moe_ep_rank moe_dp_rank rank dp_size
	model model_name served_model_name base_model model_version requested_model model_id
	revision commit goversion version incarnation nic interface port_id
	dynamo_namespace dynamo_component dynamo_endpoint inference_pool inferencepool pool producer target native slice index mountpoint`

const ordinaries = `
	engine_type finished_reason finish_reason reason status code status_code status_class method handler route path endpoint operation
	source mode kind type state phase stage position role op quantile_name cache_source generation sleep_state err error error_type exception exception_class
	exception_status request_type grpc_code grpc_method grpc_service grpc_type http_request_method http_response_status_code http_route
	url_scheme network_protocol_version rpc_method rpc_service rpc_system direction level event name tenant class priority queue stream
	modelName DCGM_FI_DRIVER_VERSION DCGM_FI_PROCESS_NAME driver_version cuda_version GPU_I_PROFILE gpu_profile gpu_name gpu_model vgpu err_code err_msg xid clock_event nvlink link_status peer_gpu health_watch
	precision dtype quantization backend implementation patchlevel major minor branch goos goarch tags build_date
	cpu core socket numa fstype fs_type memory_type sensor chip cause family protocol listener listener_name upstream cluster_name
	envoy_cluster_name envoy_response_code envoy_response_code_class envoy_response_flags envoy_listener_address envoy_http_conn_manager_prefix
	provider vendor api_base_host gen_ai_operation_name gen_ai_provider_name gen_ai_system gen_ai_request_model gen_ai_response_model gen_ai_token_type token_type
	gen_ai_evaluation_name gen_ai_evaluation_score_label telemetry_sdk_language telemetry_sdk_version hw_id hw_type
	part verdict objective signal transport as compression
	server_address server_port resource pool_name store why from shard lora lora_name adapter max_lora running_lora_adapters waiting_lora_adapters`

// settings are an engine's or an exporter's, as it tells them in labels: numbers of any length.
const settings = `
	block_size cache_dtype calculate_kv_scales cpu_kvcache_space_bytes cpu_offload_gb enable_prefix_caching gpu_memory_utilization is_attention_free kv_cache_memory_bytes
	kv_sharing_fast_prefill mamba_block_size mamba_cache_dtype mamba_cache_mode mamba_page_size_padded mamba_ssm_cache_dtype num_cpu_blocks num_gpu_blocks
	num_gpu_blocks_override prefix_caching_hash_algo sliding_window swap_space_bytes swap_space user_specified_block_size use_replayssm use_kda_recoverssm swa_bounded_replay
	skip_page_size_padded replayssm_buffer_len prefix_match_unit prefix_cache_retention_interval kv_offloading_size kv_offloading_backend kv_cache_size_tokens
	kv_cache_max_concurrency kv_cache_layout kv_cache_dtype_skip_layers hash_block_size enable_mamba_shared_prefix_checkpoint effective_attention_block_size
	cache_hit_alignment_tokens _block_size_resolved window_size_in_ms`

// longest is how long a value may be; what is longer is text.
const longest = 200

// unfit says why a value of a label is not kept; "" where it is.
func unfit(t trust, value string) string {
	switch {
	case t == unknown:
		return "the label is not on the list"
	case t == length && !isLength(value):
		return "no class of lengths"
	case !utf8.ValidString(value):
		return "not UTF-8"
	case len(value) > longest:
		return "text"
	}
	if why := content(value); why != "" {
		return why
	}
	switch {
	case t != ordinary:
	case isID(value):
		return "an id"
	case value[:min(1, len(value))] == "/" && !isRoute(value):
		return "a path of no API"
	}
	return ""
}

// isLength reports whether a value is a class of lengths in tokens, as package objective names them: "to 4k", "above 256k".
var isLength = regexp.MustCompile(`^(to|above) \d{1,4}k?$`).MatchString

// roots are what paths of APIs of inference begin with. A scanner tries all others.
var roots = strings.Fields("v1 v2 v3 api prometheus openai health healthz ready readyz live livez ping version metrics generate generate_stream tokenize detokenize " +
	"chat completions completion embeddings embedding embed rerank score pooling classify models model info load invocations inference_pool sleep wake_up is_sleeping " +
	"prometheus reset_prefix_cache start_profile stop_profile server_info docs openapi.json get_model_info get_server_info flush_cache abort_request")

func isRoute(path string) bool {
	root, rest, _ := strings.Cut(path[1:], "/")
	return path == "/" || slices.Contains(roots, root) && !strings.ContainsAny(strings.TrimSuffix(rest, ".json"), ".%\\~") && strings.Count(rest, "/") < 5
}

// content says which kind of content a value is that no label may have, whatever it is called.
func content(v string) string {
	words := 0
	for _, r := range v {
		switch {
		case unicode.IsControl(r):
			return "text"
		case r == ' ':
			words++
		}
	}
	lower := strings.ToLower(v)
	switch {
	case words > 6 || words > 2 && strings.ContainsAny(v, "?!,;"):
		return "text"
	case isMail(v):
		return "an e-mail address"
	case strings.Contains(v, "?") && (strings.Contains(v, "=") || strings.Contains(v, "/")), strings.Contains(v, "://") && strings.Contains(v, "@"):
		return "a URL with arguments"
	case secretive(lower, v):
		return "a secret"
	}
	return ""
}

func isMail(v string) bool {
	at := strings.IndexByte(v, '@')
	return at > 0 && strings.Contains(v[at:], ".") && !strings.Contains(v, "/")
}

func secretive(lower, v string) bool {
	for _, p := range []string{"sk-", "bearer ", "basic ", "ghp_", "gho_", "xoxb-", "xoxp-", "hf_", "glpat-"} {
		if strings.HasPrefix(lower, p) && len(v) >= 12 {
			return true
		}
	}
	return strings.HasPrefix(v, "eyJ") && len(v) >= 20 || strings.HasPrefix(v, "AKIA") && len(v) == 20
}

// isID reports whether a value has a part that looks like an id: a UUID, many hexadecimal digits, a long number, random letters and digits.
func isID(v string) bool {
	if len(v) >= 32 && isUUID(v) {
		return true
	}
	for part := range strings.FieldsFuncSeq(v, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') }) {
		if isIDPart(part) {
			return true
		}
	}
	return false
}

func isUUID(v string) bool {
	hex := 0
	for i := range len(v) {
		switch c := v[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			if hex++; hex == 32 {
				return true
			}
		case c != '-':
			hex = 0
		}
	}
	return false
}

func isIDPart(v string) bool {
	digits, hexes, turns := 0, 0, 0 // turns: from a letter to a digit, or from small to capital, and back
	class := 0
	for i := range len(v) {
		c, now := v[i], 0
		switch {
		case c >= '0' && c <= '9':
			digits++
			hexes++
			now = 1
		case c >= 'a' && c <= 'z':
			now = 2
			if c <= 'f' {
				hexes++
			}
		default:
			now = 3
			if c <= 'F' {
				hexes++
			}
		}
		if class != 0 && now != class {
			turns++
		}
		class = now
	}
	switch {
	case digits == len(v):
		return digits >= 7
	case hexes == len(v):
		return len(v) >= 12 && digits > 0
	}
	return len(v) >= 16 && digits >= 3 && turns >= 6
}

// shape is a value as an example that shows nothing of it: what kinds of characters it has, in which order.
func shape(v string) string {
	var b strings.Builder
	var last rune
	for _, r := range v {
		switch {
		case unicode.IsLetter(r):
			r = 'a'
		case unicode.IsDigit(r):
			r = '9'
		case r == ' ', r < 128 && unicode.IsPunct(r), r < 128 && unicode.IsSymbol(r):
		default:
			r = '.'
		}
		if r == last {
			continue
		}
		if b.Len() >= 40 {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
		last = r
	}
	return b.String()
}

// isName reports whether a metric's name can be one: a word of a program, no value in disguise.
func isName(name string) bool {
	if name == "" || len(name) > longest {
		return false
	}
	for i, r := range name {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == ':' || r == '.' || i > 0 && (r >= '0' && r <= '9' || r == '-' || r == '/') {
			continue
		}
		return false
	}
	return !isID(name)
}
