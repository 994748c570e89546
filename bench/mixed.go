package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The calls that the paper's cell was asked for (Chubby §4.1), in parts in a million of all calls.
// KeepAlives are those of the crowd.
const (
	keepAliveShare = 930_000
	statShare      = 20_000 // GetStat
	openShare      = 10_000
	sessionShare   = 10_000 // CreateSession
	readShare      = 4_000  // GetContentsAndStat
	writeShare     = 680    // SetContents
	lockShare      = 31     // Acquire
	otherShares    = statShare + openShare + sessionShare + readShare + writeShare + lockShare
)

// mixer is a worker that can do what the paper's clients do.
type mixer interface {
	worker
	// Stat asks for the metadata of the worker's file.
	Stat(ctx context.Context) error
	// Reopen opens the worker's file once more, and closes it; a system without handles asks whether
	// it exists.
	Reopen(ctx context.Context) error
}

// mixedResult is how the calls of the paper's mix fare beside a crowd.
type mixedResult struct {
	Rate  float64       `json:"rate"` // a second, without KeepAlives
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Cores float64       `json:"cores"` // of all servers, with the crowd
}

// maxMixedClients bounds the clients that make the calls beside a crowd.
const maxMixedClients = 16

// measureMixed makes calls in the paper's shares beside a crowd, as many as belong to its KeepAlives,
// and at set times.
func measureMixed(ctx context.Context, s sessionKeeper, keepAlives float64, watch time.Duration) (_ mixedResult, err error) {
	rate := max(keepAlives*otherShares/keepAliveShare, 1) // 0 would be a closed loop
	ops := make([]operation, min(int(rate), maxMixedClients))
	for i := range ops {
		w, err := s.Connect(ctx, i)
		if err != nil {
			return mixedResult{}, err
		}
		defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
		m, ok := w.(mixer)
		if !ok {
			return mixedResult{}, fmt.Errorf("%s: %w", s.Version(), errNotMeasured)
		}
		ops[i] = mix(s, m, rand.New(rand.NewPCG(uint64(i), 1)))
	}
	one, err := runLoad(ctx, plan{warm: time.Second, measure: watch, rate: rate, used: meter(s)}, ops)
	return mixedResult{Rate: one.Rate, P50: one.P50, P99: one.P99, Cores: one.ServerCPU.Seconds() * one.Rate}, err
}

// mix makes a call each time, in the paper's shares.
func mix(s sessionKeeper, w mixer, random *rand.Rand) operation {
	return func(ctx context.Context, held func()) error {
		n := random.IntN(otherShares)
		for _, one := range []struct {
			share int
			do    operation
		}{
			{statShare, plain(w.Stat)},
			{openShare, plain(w.Reopen)},
			{sessionShare, func(ctx context.Context, _ func()) error {
				end, err := s.OpenSession(ctx)
				if err != nil {
					return err
				}
				return end(ctx)
			}},
			{readShare, plain(w.Read)},
			{writeShare, plain(w.Write)},
			{lockShare, take(own)(w)},
		} {
			if n < one.share {
				return one.do(ctx, held)
			}
			n -= one.share
		}
		return nil
	}
}
