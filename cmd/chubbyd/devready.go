package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/chubbylock/chubby/cell"
)

const (
	pollEvery  = 100 * time.Millisecond // until there is a master
	pollSlowly = 500 * time.Millisecond // from then on
	quietFor   = 2 * time.Second        // between two lines about the wait
	pollBound  = time.Second            // for one replica's answer
	maxAnswer  = 64 << 10               // bytes of one replica's answer
)

// followMaster asks every replica repeatedly, and sends each new master's first answer to masters. Without a
// master, it prints from time to time what it waits for.
func (d *dev) followMaster(ctx context.Context, masters chan<- cell.Health) {
	client := &http.Client{Timeout: pollBound, Transport: &http.Transport{DisableKeepAlives: true}}
	remind := time.NewTicker(quietFor)
	defer remind.Stop()
	var (
		known cell.Health   // of the latest master
		seen  pollResult    // of the latest round
		since time.Duration // how long there has been no master
	)
	next := pollEvery
	for {
		before := seen.master.Master
		seen = d.poll(ctx, client)
		d.healthy.Store(seen.isHealthy() && ctx.Err() == nil)
		if before != "" && seen.master.Master == "" {
			since = 0
			remind.Reset(quietFor)
		}
		if m := seen.master; m.Epoch > known.Epoch {
			known, next = m, pollSlowly
			select {
			case masters <- m:
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-remind.C:
			if seen.master.Master == "" {
				since += quietFor
				d.out.printf("waiting for a master since %v: %s; the logs are in %s", since, seen, d.cell.logFiles())
			}
		case <-time.After(next):
		}
	}
}

type pollResult struct {
	replicas  int
	answering int
	master    cell.Health // the master's answer, if there is one
	silent    string      // a silent replica, and why
}

func (s pollResult) isHealthy() bool { return s.answering == s.replicas && s.master.Master != "" }

func (s pollResult) String() string {
	text := fmt.Sprintf("%d of %d replicas answer, none is the master yet", s.answering, s.replicas)
	if s.silent != "" {
		text += "; " + s.silent
	}
	return text
}

func (d *dev) poll(ctx context.Context, client *http.Client) pollResult {
	seen := pollResult{replicas: len(d.cell.Replicas)}
	for i := range d.cell.Replicas {
		r := &d.cell.Replicas[i]
		answer, err := askReady(ctx, client, r.HTTP)
		if err != nil {
			seen.silent = fmt.Sprintf("%s does not (%v)", r.ID, err)
			continue
		}
		seen.answering++
		// A former master that does not know of its successor has an older epoch.
		if answer.Ready && answer.Master != "" && answer.Master == answer.Replica && answer.Epoch > seen.master.Epoch {
			seen.master = answer
		}
	}
	return seen
}

func askReady(ctx context.Context, client *http.Client, address string) (cell.Health, error) {
	var answer cell.Health
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return answer, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer reply.Body.Close()
	// A replica that is not ready answers with an error status and the same fields.
	err = json.NewDecoder(http.MaxBytesReader(nil, reply.Body, maxAnswer)).Decode(&answer)
	if err != nil {
		return answer, fmt.Errorf("GET /readyz: %s: %w", reply.Status, err)
	}
	return answer, nil
}
