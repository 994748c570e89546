package cell

import (
	"math/rand/v2"
	"time"

	"github.com/chubbylock/chubby/raftfsm"
)

// Believe makes a replica take an election timeout past its bounds. It imitates
// one that was stopped, and has not looked at its clock since.
func (cfg *Config) Believe(election time.Duration) { cfg.beliefs = election }

// RefuseEntries has one in ten of the entries that the replica proposes as the
// master refused before it is written. What waits for it is to be as if it had not
// been tried.
func RefuseEntries(cfg *Config) {
	random := &chance{random: rand.New(rand.NewPCG(3, 5))}
	cfg.proposeTo = func(log Log) Log { return refuser{Log: log, random: random} }
}

type refuser struct {
	Log
	random *chance
}

func (r refuser) Append(entry []byte) ([]raftfsm.Result, error) {
	if r.random.percent(10) {
		return nil, notAppended
	}
	return r.Log.Append(entry)
}
