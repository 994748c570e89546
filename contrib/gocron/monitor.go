package chubbycron

import (
	"time"

	"github.com/go-co-op/gocron/v2"
)

// monitor tells an Elector when jobs have ended. gocron calls one of JobFailed and
// JobCompleted once after each nil of IsLeader.
type monitor struct {
	gocron.SchedulerMonitor
	elector *Elector
}

// JobFailed is gocron's.
func (m monitor) JobFailed(job gocron.Job, err error) {
	m.elector.leave()
	m.SchedulerMonitor.JobFailed(job, err)
}

// JobCompleted is gocron's.
func (m monitor) JobCompleted(job gocron.Job) {
	m.elector.leave()
	m.SchedulerMonitor.JobCompleted(job)
}

// silent is a monitor that does nothing.
type silent struct{}

func (silent) SchedulerStarted()                                      {}
func (silent) SchedulerStopped()                                      {}
func (silent) SchedulerShutdown()                                     {}
func (silent) JobRegistered(gocron.Job)                               {}
func (silent) JobUnregistered(gocron.Job)                             {}
func (silent) JobStarted(gocron.Job)                                  {}
func (silent) JobRunning(gocron.Job)                                  {}
func (silent) JobFailed(gocron.Job, error)                            {}
func (silent) JobCompleted(gocron.Job)                                {}
func (silent) JobExecutionTime(gocron.Job, time.Duration)             {}
func (silent) JobSchedulingDelay(gocron.Job, time.Time, time.Time)    {}
func (silent) ConcurrencyLimitReached(limitType string, _ gocron.Job) {}
