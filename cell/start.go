package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// Start opens the replica's data, joins the cell and serves. It returns once the replica listens; the cell may
// get a master later. On an empty data directory it fails with ErrRefused, unless cfg.Bootstrap is set. Then it
// begins the cell with all cfg.Members, and waits for them until ctx ends; it fails with ErrRefused if one of
// them already knows the cell. Later, ctx has no effect.
func Start(ctx context.Context, cfg Config) (*Replica, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	r := newReplica(cfg)
	defer close(r.started)
	if err := r.start(ctx); err != nil {
		err = cmp.Or(r.Err(), err)
		if r.release(); ctx.Err() != nil {
			r.noteEnd(slog.String("error", err.Error()))
		}
		r.logs.close()
		return nil, err
	}
	return r, nil
}

// newReplica returns a replica that has opened nothing yet.
func newReplica(cfg Config) *Replica {
	m := &member{cfg: cfg, clock: cfg.Clock}
	is := &mastership{member: m, outages: &outages{member: m, asked: make(chan *outage)}}
	hands := &handOvers{mastership: is, handing: make(chan struct{}, 1), lost: make(chan string, 1)}
	absent := &absences{}
	r := &Replica{
		mastership:  is,
		credentials: &credentials{member: m},
		epochs:      &epochs{mastership: is, begun: cfg.Clock(), elections: make(chan bool, 64), ended: make(chan struct{})},
		handOvers:   hands,
		membership:  &membership{mastership: is, handOvers: hands, absences: absent},
		checks:      &checks{mastership: is, absences: absent, reached: make(chan fsm.CheckPoint, 1)},
		publisher:   &publisher{mastership: is},
		backups:     &backups{mastership: is},
		started:     make(chan struct{}),
		done:        make(chan struct{}),
	}
	r.logs, r.log = newLogQueue(cfg.Logger.With("replica", cfg.ID))
	r.cfg.Logger, r.fatal = r.log, r.fail
	r.space = disk.NewSpace(cfg.Data, r.clock, r.log)
	r.metrics = newMetrics(r)
	r.epochs.metrics, r.epochs.times = r.metrics, &entryTimes{}
	return r
}

// start builds the replica from the disk up. If it fails, release undoes what it did.
func (r *Replica) start(ctx context.Context) error {
	r.log.Info("starting", "event", "replica_starting", "version", Version(), "cell", r.cfg.Cell, "data", r.cfg.Data)
	if err := r.credentials.open(ctx); err != nil {
		return err
	}
	if err := r.openAudit(); err != nil {
		return err
	}
	if err := r.listen(ctx); err != nil {
		return err
	}
	var err error
	if r.stores, err = disk.Open(r.cfg.Data, disk.LogStore(r.cfg.LogStore), r.storeOptions()); err != nil {
		return disk.ExplainFull(r.cfg.Data, err)
	}
	if err := r.checkConfiguration(); err != nil {
		return err
	}
	if err := r.startRaft(ctx); err != nil {
		return err
	}
	r.serve()
	r.logStart()
	return nil
}

func (r *Replica) openAudit() error {
	a := r.cfg.Audit
	if a.File == "" {
		return nil
	}
	var err error
	r.audit, err = audit.Open(audit.Config{
		Cell: r.cfg.Cell, Replica: r.cfg.ID, File: a.File, Size: int64(a.MiB) << 20, Files: a.Files,
		Wall: r.cfg.Wall, Clock: r.clock, Logger: r.log, Failed: func() { r.metrics.auditErrors.Add(1) },
	})
	if err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "start", Message: err.Error() + "; audit-file names it", Err: err}
	}
	return nil
}

func (r *Replica) storeOptions() disk.Options {
	return disk.Options{
		Cell:    r.cfg.Cell,
		ID:      r.cfg.ID,
		Fatal:   r.fail,
		Silence: r.silence,
		Stall:   r.cfg.DiskStall,
		Logger:  r.log,
		RaftLog: peer.NewStoreLog(r.log),
		Clock:   r.clock,
		Appended: func(a disk.Appended) {
			r.metrics.appends.Observe(a.To.Sub(a.From).Seconds())
			r.epochs.times.noteAppended(a)
		},
		Bootstrap: r.cfg.Bootstrap || r.cfg.Join || r.cfg.Spare,
	}
}

func (r *Replica) startRaft(ctx context.Context) error {
	self, _ := r.cfg.self()
	r.passport = peer.NewPassport(r.stores.Identity().Get, r.stores.Last(), r.fail, r.clock, r.log)
	r.passport.MayBeNewcomer(r.mayBeNewcomer)
	r.port = peer.OpenPort(peer.PortConfig{
		Passport:  r.passport,
		Bootstrap: r.bootstrapReport,
		Cell:      r.cfg.Cell,
		ID:        r.cfg.ID,
		Client:    r.advertised(),
		Address:   self.Raft,
		Listen:    r.cfg.RaftListener,
		MemberAt:  r.memberAt,
		Connect:   r.cfg.Dial,
		Lost:      r.handOvers.noteLost,
		Logger:    r.log,

		Certificates: r.credentials.peers,
	})
	raftLog := peer.NewRaftLog(r.log, r.clock, r.memberAt)
	r.transport = peer.NewTransport(r.port, raftLog, r.stores.Stored)
	r.mu.Lock()
	r.quiet = r.port.Silence
	r.mu.Unlock()
	r.fsm = fsm.New(r.cfg.supports, r.noteRoster, func(err error) {
		switch {
		case errors.Is(err, raftfsm.ErrNewer):
			err = newerData(r.cfg.ID, err)
		case errors.Is(err, raftfsm.ErrUnreleased):
			err = unreleasedData(r.cfg.ID, r.cfg.Data, err)
		}
		r.fail(err)
	})
	r.fsm.OnCheckPoint(r.checks.noteCheckPoint)
	r.fsm.OnApplied(r.clock, func(a fsm.Applied) {
		r.metrics.applies.Observe(a.To.Sub(a.From).Seconds())
		r.epochs.times.noteApplied(a)
	})
	r.checks.comparison = peer.NewComparison(r.fsm.HistoryAt, r.clock, r.log)
	r.prober = peer.NewProber(r.port, r.clock, r.checks.noteReport)
	conf := r.raftConfig()
	conf.Logger = raftLog
	if err := r.bootstrap(ctx, conf); err != nil {
		return err
	}
	var err error
	if r.raft, err = r.stores.StartRaft(conf, r.fsm, r.transport); err != nil {
		return fmt.Errorf("start raft on %s: %w", r.cfg.Data, err)
	}
	r.passport.HoldsUpTo(func() uint64 { return r.stores.Holds(r.raft) })
	r.running.Store(r.raft)
	r.transport.StartReceiving(r.servers)
	most := affordableConnections(r.cfg.MaxConnections, descriptorLimit())
	if most < r.cfg.MaxConnections {
		r.log.Info("fewer client connections are allowed than max-connections: raise the limit of open files (ulimit -n, LimitNOFILE) for more",
			"allowed", most, "wanted", r.cfg.MaxConnections)
	}
	r.ports.conns = wire.NewConnections(wire.Bounds{
		Connections: most, PerAddress: r.cfg.MaxConnectionsPerAddress, Memory: int64(r.cfg.ClientMemoryMiB) << 20,
		Rates: wire.Rates{
			Calls: r.cfg.MaxCallsPerPrincipal, Sessions: r.cfg.MaxNewSessionsPerPrincipal,
			CallsPerAddress: r.cfg.MaxCallsPerAddress, HandshakesPerAddress: r.cfg.MaxHandshakesPerAddress,
		},
	}, wire.Told{Refused: r.metrics.refusals.Inc, Shed: r.metrics.shed.Inc, Late: r.metrics.late.Inc}, r.log)
	r.port.AnswerProbes(r.checks.probeReport)
	r.startParts()
	return nil
}

// startParts starts the goroutines of what follows Raft and its elections, or observes.
func (r *Replica) startParts() {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	for _, run := range []func(context.Context){
		r.epochs.run, r.checks.probeOthers, r.checks.hashCheckPoints, r.checks.watchContradictions, r.handOvers.replaceDead,
		r.membership.followRoster, r.publisher.run, r.backups.run, r.space.Watch,
		func(ctx context.Context) { r.credentials.watchCertificates(ctx, r.ports.conns) }, r.credentials.watchTokens,
	} {
		r.work.Go(func() { run(ctx) })
	}
}

func (r *Replica) raftConfig() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(r.cfg.ID)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = r.cfg.ElectionTimeout, r.cfg.ElectionTimeout, r.cfg.ElectionTimeout
	conf.MaxAppendEntries = maxAppend
	conf.SnapshotThreshold = 4096
	conf.SnapshotInterval = 30 * time.Second
	conf.TrailingLogs = 2 * conf.SnapshotThreshold // for replicas slightly behind; see failStopLogs.DeleteRange
	conf.NotifyCh = r.epochs.elections
	conf.NoLegacyTelemetry = true
	return conf
}

// serve starts the servers for clients and for operators.
func (r *Replica) serve() {
	r.ports.clients = wire.NewServer(wire.Config{
		Cell:               r.cfg.Cell,
		ID:                 r.cfg.ID,
		Replica:            served{r},
		Logger:             r.log,
		Audit:              r.audit,
		Stopwatch:          stopwatch(),
		Answered:           r.metrics.calls.answered,
		Tracer:             newTracer(r.cfg),
		InsecurePrincipals: r.cfg.InsecurePrincipals,
	})
	r.work.Go(func() {
		if err := r.ports.clients.Serve(r.credentials.listener(r.ports.conns)); err != nil {
			r.log.Error("the client port is closed", "error", err)
		}
	})
	if r.cfg.HTTPListener == nil {
		return
	}
	r.ports.console = newConsole(r.credentials)
	r.ports.http = newHTTPServer(r)
	r.work.Go(func() { r.serveHTTP(&turnover{Listener: r.cfg.HTTPListener, most: maxHTTPConns}) })
}

func (r *Replica) serveHTTP(t *turnover) {
	var l net.Listener = t
	if r.ports.console != nil && r.credentials.clients != nil {
		s := newSniffer(t, r.credentials.clients)
		defer s.work.Wait()
		l = s
	}
	if err := r.ports.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		r.log.Error("the http port is closed", "error", err)
		_ = l.Close() // it may be closed already
	}
}

// maxAppend is how many entries Raft sends to a follower in one call, within raftRPCTimeout, and stores in one
// step. 16 of 320 KiB are at most 5 MiB, one second at 40 Mbit/s. The proposer already packs entries.
const maxAppend = 16

// ErrRefused is in the error chain when a replica must not run on its data directory: it is empty, damaged,
// incomplete, or of another replica or cell. A restart does not help; an operator has to act.
var ErrRefused = identity.ErrRefused

// newerData returns the refusal of data that a newer version wrote.
func newerData(id string, err error) error {
	return identity.Refused("replica %s is of version %s and cannot follow its cell: %v. Nothing is damaged. Start this replica with the version that the master has: "+
		"it catches up by itself. Once the upgrade of a cell is finished (chubbyctl cell upgrade finish), no replica can go back", id, Version(), err)
}

// unreleasedData returns the refusal of data from before the first release.
func unreleasedData(id, data string, err error) error {
	return identity.Refused("replica %s cannot use the data in %s: %v. Bootstrap the cell anew, with an empty data directory for every replica", id, data, err)
}
