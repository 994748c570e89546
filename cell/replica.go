package cell

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// Replica is one running member of a cell. Its methods may be called from any goroutine.
type Replica struct {
	cfg   Config
	clock session.Clock
	begun session.Instant // when it started
	log   *slog.Logger    // never waits until a line is written
	logs  *logQueue

	stores     *disk.Stores
	space      *disk.Space
	passport   *peer.Passport
	absences   absences
	comparison *peer.Comparison
	reached    chan fsm.CheckPoint // the newest applied check point whose state is not hashed yet
	leaving    atomic.Bool         // this replica may be about to stop, and contradicts nobody; see stopIfContradicted
	port       *peer.Port
	transport  *peer.Transport
	prober     *peer.Prober
	fsm        *fsm.FSM
	raft       *raft.Raft
	running    atomic.Pointer[raft.Raft] // raft, for goroutines that start before it
	metrics    *metrics
	times      *entryTimes
	conns      *wire.Connections
	clients    *wire.Server
	http       *http.Server
	console    *console.Console // nil if disabled

	clientCerts, peerCerts *certs.Store                          // nil without encryption
	tokens                 *tokens.Store                         // nil if disabled
	audit                  *audit.Log                            // nil if disabled
	auditErrors            atomic.Int64                          // acts that it failed to record
	stuck                  atomic.Pointer[stuckChange]           // nil unless this is the master, and a change of the replicas is blocked
	publishing             atomic.Int64                          // failed attempts to publish, in succession
	backups                struct{ failures, last atomic.Int64 } // what takeBackups has done; last in seconds since 1970

	master atomic.Pointer[master.Master] // nil unless this replica is the master

	cancel      context.CancelCauseFunc // ends runEpochs
	elections   chan bool               // Raft reports here that it leads, or no longer leads
	epochsEnded chan struct{}           // closed when runEpochs has ended
	lost        chan string             // replicas that closed a stream of their Raft messages; see replaceDead
	handing     chan struct{}           // full during a hand-over; see Transfer
	outages     outages
	work        sync.WaitGroup // runEpochs and the servers
	once        sync.Once      // the first of Stop and fail
	left        raft.Future    // Raft's end; for the goroutine that stops the replica
	started     chan struct{}  // closed when Start returns
	done        chan struct{}

	mu    sync.Mutex // guards the fields below
	err   error      // why the replica stopped by itself
	quiet func()     // silences the port; nil until there is one
}

// Done is closed when the replica has stopped, by Stop or by itself.
func (r *Replica) Done() <-chan struct{} { return r.done }

// Log returns the replica's logger. It never waits for Config.Logger: it drops and counts lines that come too
// fast, and writes nothing after the replica has stopped.
func (r *Replica) Log() *slog.Logger { return r.log }

// Err returns why the replica stopped by itself (a disk failure or stall); nil after Stop or while it runs.
func (r *Replica) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// stuckChange says why a change of the cell's replicas is blocked.
type stuckChange struct{ id, why string }
