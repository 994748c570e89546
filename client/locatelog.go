package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/session"
)

// When a search that has found no master is told to the log: an election is over
// sooner, and whoever reads the log of a program that hangs sees why.
const (
	firstSearchLine = time.Second
	nextSearchLine  = 10 * time.Second
)

// searchLog tells the log of a search that goes on.
type searchLog struct {
	began, due session.Instant // due is 0 before the first round
}

// note takes note of a round that has found no master.
func (s *searchLog) note(ctx context.Context, f *finder) {
	now := f.cfg.Clock()
	switch {
	case s.due == 0:
		s.began, s.due = now, now.Add(firstSearchLine)
	case now >= s.due:
		s.due = now.Add(nextSearchLine)
		f.cfg.Logger.WarnContext(ctx, "no master of the cell has been found yet",
			"cell", f.cfg.Cell, "for", now.Sub(s.began), "said", f.diagnosis())
	}
}
