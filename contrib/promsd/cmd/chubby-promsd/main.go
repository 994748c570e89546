// chubby-promsd writes files for Prometheus's file_sd_configs, and answers http_sd_configs, out of the
// directories of a Chubby cell. See package promsd.
//
//	chubby-promsd -config promsd.json
//	chubby-promsd -config promsd.json -check
//
// Its exit code is 0 when it was asked to stop, 1 if it failed, and 2 for a configuration that is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/promsd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpTimeout bounds a request, and the shutdown of the server.
const httpTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program. It returns its exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("chubby-promsd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "the configuration `FILE`, JSON; README.md describes it")
	check := flags.Bool("check", false, "check the configuration, and do nothing")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	s, err := readSettings(*file)
	if err != nil {
		fmt.Fprintln(stderr, "chubby-promsd:", err)
		return 2
	}
	cfg := s.client()
	cfg.Logger = log
	keeper, err := client.Keep(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "chubby-promsd:", err)
		return 2
	}
	defer func() { _ = keeper.Close(ctx) }() // a session that cannot be ended ends with its lease
	d, err := promsd.New(promsd.Config{Sessions: keeper, Jobs: s.Jobs, Logger: log})
	if err != nil {
		fmt.Fprintln(stderr, "chubby-promsd:", err)
		return 2
	}
	if *check {
		return 0
	}
	if err := serve(ctx, d, s.Listen, log); err != nil {
		log.Error("ended", "error", err)
		return 1
	}
	return 0
}

// serve runs the discovery, and the server if there is an address, until ctx ends.
func serve(ctx context.Context, d *promsd.Discovery, address string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if address == "" {
		return d.Run(ctx)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(d)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/", d)
	server := &http.Server{Handler: mux, ReadTimeout: httpTimeout, WriteTimeout: httpTimeout, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() {
		defer cancel() // without the server, the program ends
		served <- server.Serve(listener)
	}()
	log.Info("listening", "address", listener.Addr().String())
	err = d.Run(ctx)
	stopping, done := context.WithTimeout(context.WithoutCancel(ctx), httpTimeout)
	defer done()
	err = errors.Join(err, server.Shutdown(stopping))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve: %w", end))
	}
	return err
}
