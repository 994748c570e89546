package main

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/internal/load"
)

// patience bounds an operation that began before the end of its row.
const patience = 30 * time.Second

// operation is one operation of a worker. One that takes a lock calls held when it has it.
type operation = load.Operation

// plan says how long a load lasts.
type plan struct {
	warm, measure time.Duration // what is not counted, and then what is
	limit         int64         // operations counted, after which it ends; 0 is no limit
	rate          float64       // operations a second of all workers, begun at set times; 0 is a closed loop
	used          func() usage  // nil if nobody asks for processor time
}

// runLoad runs each operation in its own loop, all concurrently, as long as the plan says. What was used is that of the
// measurement, also if an operation takes longer.
func runLoad(ctx context.Context, p plan, ops []operation) (sample, error) {
	spent := usage{}
	lasting, end := context.WithCancel(ctx)
	var meter sync.WaitGroup
	if p.used != nil {
		meter.Go(func() {
			_ = sleep(lasting, p.warm)
			before := p.used()
			_ = sleep(lasting, p.measure)
			spent = p.used().since(before)
		})
	}
	r, err := load.Run(ctx, load.Plan{
		Warm: p.warm, Measure: p.measure, Limit: p.limit, Rate: p.rate,
		Patience: func(interrupted bool) (time.Duration, error) {
			if interrupted {
				return 0, context.Canceled
			}
			return patience, context.DeadlineExceeded
		},
	}, ops)
	end()
	meter.Wait()
	if err != nil {
		return sample{}, err
	}
	s := summarize(r)
	if s.Ops > 0 {
		s.ServerCPU = spent.servers / time.Duration(s.Ops)
		s.ClientCPU = spent.generator / time.Duration(s.Ops)
		s.Bytes = spent.sent / s.Ops
	}
	return s, nil
}
