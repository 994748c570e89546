package peer

import (
	"sync"

	"github.com/hashicorp/raft"
)

// AppendEntries sends entries, and remembers what the other replica then holds.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	args = t.sent(args)
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.acknowledged(id, args, resp)
	}
	return err
}

// AppendEntriesPipeline is AppendEntries for entries in close succession.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &watchedPipeline{AppendPipeline: inner, sent: t.sent, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p.work.Go(func() {
		p.forwardAnswers(func(f raft.AppendFuture) { t.acknowledged(id, f.Request(), f.Response()) })
	})
	return p, nil
}

// acknowledged records that a replica answers, and how far its log agrees with this leader's, at most up to the
// commit index of the request.
func (t *Transport) acknowledged(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	t.away.answered(string(id), args.PrevLogEntry != 0 || len(args.Entries) > 0) // a heartbeat has neither
	if !resp.Success {
		return
	}
	index := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		index = args.Entries[n-1].Index
	}
	//mutant: _ = index
	t.port.Passport.NoteHeld(string(id), min(index, args.LeaderCommitIndex))
}

// watchedPipeline reads each answer before Raft does. Close waits for its goroutine.
type watchedPipeline struct {
	raft.AppendPipeline
	sent    appendChange
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	work    sync.WaitGroup
}

func (p *watchedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	return p.AppendPipeline.AppendEntries(p.sent(args), resp)
}

func (p *watchedPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

func (p *watchedPipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	err := p.AppendPipeline.Close()
	p.work.Wait()
	return err
}

func (p *watchedPipeline) forwardAnswers(answered func(raft.AppendFuture)) {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			if f.Error() == nil { // does not wait: an answer arrives only when complete
				answered(f)
			}
			select {
			case p.answers <- f:
			case <-p.closed:
				return
			}
		case <-p.closed:
			return
		}
	}
}
