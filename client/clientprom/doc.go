// Package clientprom has the metrics of a program's own sessions, for Prometheus: whether they are
// safe, how long calls and waits for locks take, what the caches save.
//
//	metrics := clientprom.New()
//	prometheus.MustRegister(metrics)
//	c, err := client.New(ctx, client.Config{Cell: "foo", Meter: metrics.Meter()})
//
// One Metrics may be that of many sessions and Cells, at the same time and one after the other, as
// with client.Renew: what it shows is of all of them together. Programs that use several cells
// have one for each, and register it under a label:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"cell": "foo"}, prometheus.DefaultRegisterer).MustRegister(metrics)
//
// No label has the name of a node, of a principal or of a replica, so the number of metrics does not
// grow with the cell. docs/client-metrics.md lists them; docs/monitoring.md says which to watch. They are
// what one process sees of the cell. What the cell itself sees, its replicas serve (docs/metrics.md).
//
// Programs that do not import this package do not link Prometheus's library.
package clientprom
