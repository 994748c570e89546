package cell

import (
	"context"
	"net/http"
	"sync"

	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/hashicorp/raft"
)

// Replica is one running member of a cell: what starts and stops. Its methods may be called from any goroutine.
type Replica struct {
	*mastership
	logs    *logQueue
	metrics *metrics

	credentials *credentials
	epochs      *epochs
	handOvers   *handOvers
	membership  *membership
	checks      *checks
	publisher   *publisher
	backups     *backups
	ports       ports

	cancel  context.CancelCauseFunc // ends what startParts has started
	work    sync.WaitGroup          // all of that, and the servers
	once    sync.Once               // the first of Stop and fail
	left    raft.Future             // Raft's end; for the goroutine that stops the replica
	started chan struct{}           // closed when Start returns
	done    chan struct{}

	mu    sync.Mutex // guards the fields below
	err   error      // why the replica stopped by itself
	quiet func()     // silences the port for replicas; nil until there is one
}

// ports are what serves clients and operators.
type ports struct {
	conns   *wire.Connections
	clients *wire.Server
	http    *http.Server
	console *console.Console // nil if disabled
}
