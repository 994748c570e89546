// Package otlp sends the spans of a program to a collector, by the protocol of OpenTelemetry over gRPC.
//
// The rule it upholds: who makes spans never waits for the collector. What has ended waits in a queue of bounded length; what finds
// that full, or cannot be sent, is lost and counted.
//
// Where the collector is, the caller says. What else there is to say (certificates, headers, a time limit, attributes of
// the resource) is in the environment, by the names that OpenTelemetry gives them: OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_EXPORTER_OTLP_HEADERS and so on. HTTP is not spoken, whatever OTEL_EXPORTER_OTLP_PROTOCOL says.
//
// Everything here may be called from any goroutine. An Exporter has the goroutines of OpenTelemetry's processor, for which Close
// waits.
package otlp
