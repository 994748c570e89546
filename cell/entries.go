package cell

import "github.com/chubbylock/chubby/cell/internal/master"

func (r *Replica) entries() master.Log {
	log := entryLog{r.raft, r.metrics.entrySized, r.times}
	if r.cfg.proposeTo != nil {
		return r.cfg.proposeTo(log)
	}
	return log
}
