package chubbycron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/client"
	chubbycron "github.com/chubbylock/chubby/contrib/gocron"
	"github.com/go-co-op/gocron/v2"
)

// One of several processes runs the jobs. "chubbyd dev" starts a cell for it.
func Example() {
	ctx := context.Background()
	keeper, err := client.Keep(ctx, client.Config{RefusedFor: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keeper.Close(ctx)
	elector, err := chubbycron.NewElector(keeper, chubbycron.ElectorConfig{Path: "/ls/local/cron/leader"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer elector.Close(ctx)
	scheduler, err := gocron.NewScheduler(elector.Options()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()
	job, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(elector.Task(func(ctx context.Context) error {
		fmt.Println("working") // ctx ends before another scheduler leads
		return nil
	})), gocron.WithName("report"))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	fmt.Println(job.Name(), "is scheduled")
	// Output: report is scheduled
}
