package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// monitor is a Prometheus.
type monitor struct{ cmd *exec.Cmd }

// scrapeConfig is as deploy/prometheus/scrape.yaml: the labels that the rules and the dashboard expect. JSON is YAML.
func scrapeConfig(o options, c *cell, all *programs) map[string]any {
	type object = map[string]any
	var members []object
	for i := range c.processes {
		members = append(members, object{"targets": []string{at(httpPort + i)}, "labels": object{"cell": cellName, "replica": fmt.Sprintf("r%d", i+1)}})
	}
	jobs := []object{{"job_name": "chubby", "static_configs": members}}
	for _, p := range all.list {
		jobs = append(jobs, object{"job_name": p.name, "static_configs": []object{{"targets": []string{p.address}}}})
	}
	return object{
		"global":         object{"scrape_interval": scrape.String(), "scrape_timeout": scrape.String(), "evaluation_interval": scrape.String()},
		"rule_files":     []string{filepath.Join(o.root, "deploy/prometheus/alerts.yaml")},
		"scrape_configs": jobs,
	}
}

// startPrometheus starts Prometheus on the recording, at a port. An empty configuration scrapes nothing.
func startPrometheus(ctx context.Context, o options, port int, config map[string]any) (*monitor, error) {
	free, err := net.Listen("tcp", at(port)) // else another Prometheus would answer in place of one that ends at once
	if err != nil {
		return nil, err
	}
	_ = free.Close()
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.recording, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(o.recording, "prometheus.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	p := &monitor{exec.CommandContext(ctx, o.prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(o.recording, "data"),
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+at(port), "--log.level=error")}
	p.cmd.Stderr = os.Stderr
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 30 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for range 300 {
		if _, err = get(ctx, "http://"+at(port)+"/-/ready"); err == nil {
			return p, nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	p.stop()
	return nil, errors.Join(errors.New("no answer of Prometheus within half a minute"), err)
}

func (p *monitor) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// readAll reads an answer, up to a size that none here has.
func readAll(body io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(body, 16<<20))
	return string(text), err
}
