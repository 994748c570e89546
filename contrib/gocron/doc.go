// Package chubbycron has schedulers of gocron (github.com/go-co-op/gocron/v2) on several
// hosts run each job once, by means of a Chubby cell: with an Elector one scheduler runs all
// of them, with a Locker each run of a job is that of the first scheduler that comes.
//
//	keeper, err := client.Keep(ctx, client.Config{})
//	elector, err := chubbycron.NewElector(keeper, chubbycron.ElectorConfig{Path: "/ls/local/cron/leader"})
//	scheduler, err := gocron.NewScheduler(elector.Options()...)
//	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(elector.Task(report)))
//	…
//	err = scheduler.Shutdown()
//	err = elector.Close(ctx)
//
// # Elector
//
// The leader holds a Chubby lock. IsLeader reads the local clock, and makes no call: it
// says no a client.Margin before the first moment at which another could lead. The lock is
// given up only when the work of the scheduler has stopped: what has begun before the lock
// was lost, or before Close, ends first. For that the Elector has to know when a job has
// ended, which the options of Options see to; without them it never gives the lock up before
// the process ends.
//
// If the session is lost, others lead after its lease and the lock-delay, whether the work
// has stopped or not. Task gives the work a context that ends before that. Servers that the
// work uses can refuse what comes from an old leader: sequencer.FromContext finds the
// sequencer to send in that context.
//
// # Locker
//
// Lock takes the lock of a job's name if it is free, and fails at once if it is not: then
// this scheduler leaves the run out. The lock is kept for LockerConfig.AtLeast from the time
// when it was taken, also if the job ends earlier: a scheduler whose clock is behind finds it
// held. To be of use for the run for which it was asked, the answer must come within the
// half of AtLeast; so clocks may differ by the other half. A job whose interval is shorter
// than AtLeast has runs left out.
//
// Schedulers that were started apart run a DurationJob at different times, and the lock of
// one run is free again at that of the next scheduler, unless AtLeast is nearly as long as
// the interval. gocron tells a Locker the name of a job, and not its interval. So a job of
// an interval needs a Locker of its own (gocron.WithDistributedJobLocker), whose AtLeast is
// a little shorter than the interval, or the Elector.
//
// If the session is lost while a job runs, another scheduler may do the next run after lease
// and lock-delay. Task gives the work a context that ends before that.
//
// # Names
//
// The lock of a job is a file in LockerConfig.Path, named as the job is, in the escapes of
// URLs: one to one. A name that is too long for a component of a path is cut, and ends with
// its SHA-256. Each name leaves an empty file. A job without a name has that of its function,
// which is the same for all functions that Task has made: name jobs (gocron.WithName).
package chubbycron
