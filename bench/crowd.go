package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// mostOfPeers is with how many sessions other systems are measured.
const mostOfPeers = 10_000

// connectionsOf returns over how many connections a crowd is spread: a hundred, if it is large.
func connectionsOf(sessions int) int { return max(1, min(100, sessions/100)) }

// crowdKeeper is a system that keeps very many sessions over few connections.
type crowdKeeper interface {
	system
	// OpenCrowd opens sessions of twelve seconds and keeps them.
	OpenCrowd(ctx context.Context, sessions int) (crowd, error)
}

// crowd is very many sessions.
type crowd interface {
	Replies() int64 // that have extended sessions until now
	Lost() int      // sessions that were ended by the servers
	Close()
}

// crowdResult is what a crowd costs.
type crowdResult struct {
	System      string        `json:"system"`
	Sessions    int           `json:"sessions"`
	Connections int           `json:"connections"`
	Opened      time.Duration `json:"opened_ns"` // how long that took
	Watched     time.Duration `json:"watched_ns"`
	Replies     float64       `json:"replies_per_second"`
	Cores       float64       `json:"cores"`     // of all servers
	Generator   float64       `json:"generator"` // cores
	Memory      int64         `json:"memory"`    // of all servers, in bytes
	Before      int64         `json:"before"`    // of that, without sessions
	Lost        int           `json:"lost"`
	Killed      bool          `json:"killed"` // what follows was measured
	Safe        time.Duration `json:"safe_ns"`
	Elected     time.Duration `json:"elected_ns"`
	Mixed       mixedResult   `json:"mixed"`
}

// crowdRecord is what the results file of crowds has.
type crowdRecord struct {
	Date    string        `json:"date"`
	Machine machine       `json:"machine"`
	Systems []measured    `json:"systems"`
	Results []crowdResult `json:"results"`
}

// runCrowd measures what crowds cost; the largest for as long as the flags say.
func runCrowd(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	found := crowdRecord{Date: results.Date, Machine: results.Machine}
	for i, sessions := range o.crowds {
		watch := o.crowdTime
		if i < len(o.crowds)-1 {
			watch = min(watch, time.Minute)
		}
		for _, name := range o.systems {
			s, err := newSystem(name, o)
			if err != nil {
				return err
			}
			keeper, ok := s.(crowdKeeper)
			if !ok || name != "chubby" && sessions > mostOfPeers {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %d sessions over %d connections\n", name, sessions, connectionsOf(sessions))
			results.addSystem(name, s.Version())
			one, err := measureCrowd(ctx, keeper, dir, sessions, watch)
			if err != nil {
				return fmt.Errorf("%s: %d sessions: %w", name, sessions, err)
			}
			one.System = name
			found.Results = append(found.Results, one)
		}
	}
	found.Systems = results.Systems
	if err := errors.Join(found.table().writeText(out), found.mixed().writeText(out)); err != nil || o.page == "" {
		return err
	}
	return found.writePage(o.page)
}

// maxMixed bounds how long other calls are made beside a crowd.
const maxMixed = 30 * time.Second

// crowdPatience bounds the opening of a crowd.
const crowdPatience = 10 * time.Minute

func measureCrowd(ctx context.Context, s crowdKeeper, parent string, sessions int, watch time.Duration) (_ crowdResult, err error) {
	dir, err := os.MkdirTemp(parent, "crowd-")
	if err != nil {
		return crowdResult{}, err
	}
	if err := s.Start(ctx, dir); err != nil {
		return crowdResult{}, err
	}
	defer func() { err = errors.Join(err, s.Stop(), os.RemoveAll(dir)) }()
	r := crowdResult{Sessions: sessions, Connections: connectionsOf(sessions), Before: residentMemory(s.Processes())}
	opening, cancel := context.WithTimeoutCause(ctx, crowdPatience, fmt.Errorf("not all sessions were open within %v", crowdPatience))
	defer cancel()
	began := time.Now()
	c, err := s.OpenCrowd(opening, sessions)
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return r, err
	}
	r.Opened = time.Since(began)
	if err := sleep(ctx, min(watch, time.Minute)); err != nil { // until the leases are as long as they become
		return r, err
	}
	began, replies, used := time.Now(), c.Replies(), meter(s)
	before := used()
	if err := sleep(ctx, watch); err != nil {
		return r, err
	}
	r.Watched = time.Since(began)
	cost := used().since(before)
	r.Cores, r.Generator = float64(cost.servers)/float64(r.Watched), float64(cost.generator)/float64(r.Watched)
	r.Replies = float64(c.Replies()-replies) / r.Watched.Seconds()
	r.Memory = residentMemory(s.Processes())
	if keeper, ok := s.(sessionKeeper); ok {
		if r.Mixed, err = measureMixed(ctx, keeper, r.Replies, min(watch, maxMixed)); err != nil {
			return r, err
		}
	}
	r.Lost = c.Lost()
	cell, mortal := s.(*chubby)
	sessionsOf, counts := c.(*chubbyCrowd)
	if mortal && counts {
		err = r.measureKill(ctx, cell, sessionsOf)
	}
	return r, err
}

// measureKill kills the master, and waits until every session has a lease of the next one, and then
// a while, so that it counts those that are lost later.
func (r *crowdResult) measureKill(ctx context.Context, cell *chubby, c *chubbyCrowd) error {
	epoch, err := cell.Term(ctx)
	if err != nil {
		return err
	}
	if err := cell.KillLeader(ctx); err != nil {
		return err
	}
	killed := time.Now()
	for time.Since(killed) < 2*time.Minute && ctx.Err() == nil {
		safe, last := c.safeUnder(epoch)
		if safe > 0 && r.Elected == 0 {
			r.Elected = time.Since(killed)
		}
		if safe+c.Lost() >= r.Sessions {
			r.Safe, r.Killed = last.Sub(killed), true
			break
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	if !r.Killed {
		safe, _ := c.safeUnder(epoch)
		return fmt.Errorf("two minutes after the kill %d of %d sessions were safe, and %d lost", safe, r.Sessions, c.Lost())
	}
	if err := sleep(ctx, min(r.Watched, time.Minute)); err != nil {
		return err
	}
	r.Lost = c.Lost()
	return nil
}

// mixed is the table of the calls that were made beside crowds.
func (r *crowdRecord) mixed() table {
	t := table{head: []string{"system", "sessions", "KeepAlives /s", "other calls /s", "p50", "p99", "cores, all servers"}}
	for _, one := range r.Results {
		m := one.Mixed
		t.rows = append(t.rows, []string{
			one.System, fmt.Sprint(one.Sessions), fmt.Sprintf("%.0f", one.Replies), fmt.Sprintf("%.1f", m.Rate), readable(m.P50), readable(m.P99), fmt.Sprintf("%.3f", m.Cores),
		})
	}
	return t
}

func (r *crowdRecord) table() table {
	t := table{head: []string{"system", "sessions", "connections", "opened in", "watched for", "replies /s", "cores, all servers", "memory, all servers", "a session", "lost", "kill of the master: first safe", "all safe"}}
	for _, one := range r.Results {
		elected, safe := "", ""
		if one.Killed {
			elected, safe = readable(one.Elected), readable(one.Safe)
		}
		t.rows = append(t.rows, []string{
			one.System, fmt.Sprint(one.Sessions), fmt.Sprint(one.Connections), readable(one.Opened), readable(one.Watched),
			fmt.Sprintf("%.0f", one.Replies), fmt.Sprintf("%.3f", one.Cores), fmt.Sprintf("%d MB", one.Memory>>20),
			fmt.Sprintf("%.1f KB", float64(one.Memory-one.Before)/float64(one.Sessions)/1024), fmt.Sprint(one.Lost), elected, safe,
		})
	}
	return t
}

//go:embed crowd.md.tmpl
var crowdTemplate string

// writePage writes the page, and the results beside it.
func (r *crowdRecord) writePage(file string) error {
	return writeDocument(file, crowdTemplate, r, map[string]any{"Record": r, "Table": r.table().markdown(), "Mixed": r.mixed().markdown()})
}
