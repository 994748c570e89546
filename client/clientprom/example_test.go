//go:build linux

package clientprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/clientprom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A program serves the metrics of its sessions beside its own.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	local, err := celltest.New(1) // in place of a cell
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Close()

	registry := prometheus.NewRegistry()
	metrics := clientprom.New()
	registry.MustRegister(metrics)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	c, err := client.New(ctx, client.Config{Servers: local.Servers(), Dialer: local.Dial, Clock: celltest.Clock, Meter: metrics.Meter()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	h, err := c.Open(ctx, "/ls/local/work", client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := l.Release(ctx); err != nil {
		fmt.Println(err)
		return
	}

	page, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer page.Body.Close()
	for _, line := range linesWith(page.Body, "chubbyclient_sessions{", "chubbyclient_lock_hold_seconds_count{", "chubbyclient_handles_open ") {
		fmt.Println(line)
	}
	// Output:
	// chubbyclient_handles_open 1
	// chubbyclient_lock_hold_seconds_count{mode="exclusive"} 1
	// chubbyclient_lock_hold_seconds_count{mode="shared"} 0
	// chubbyclient_sessions{state="expired"} 0
	// chubbyclient_sessions{state="jeopardy"} 0
	// chubbyclient_sessions{state="safe"} 1
}
