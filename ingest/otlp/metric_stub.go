package otlp

var metricMessage, recordMessage = &message{name: "Metric", alone: true}, &message{name: "LogRecord", alone: true}
