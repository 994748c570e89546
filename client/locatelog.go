package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/session"
)

// When to log a search without a master: later than an election takes, and often enough to explain a hanging
// program.
const (
	firstSearchLine    = time.Second
	searchLineInterval = 10 * time.Second
)

type searchLog struct {
	began, nextLine session.Instant // nextLine is 0 before the first round
}

func (s *searchLog) noteFailedRound(ctx context.Context, l *locator) {
	now := l.cfg.Clock()
	switch {
	case s.nextLine == 0:
		s.began, s.nextLine = now, now.Add(firstSearchLine)
	case now >= s.nextLine:
		s.nextLine = now.Add(searchLineInterval)
		l.cfg.Logger.WarnContext(ctx, "no master of the cell has been found yet",
			"cell", l.cfg.Cell, "waited", now.Sub(s.began), "said", l.diagnosis())
	}
}
