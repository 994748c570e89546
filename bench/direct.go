package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// directReader reads one file from the master each time. The client library answers reads from its
// cache and has no option against that, so directReader speaks the protocol itself, in a session
// that may not cache.
type directReader struct {
	conn    *grpc.ClientConn
	stub    chubbypb.ChubbyClient
	caller  *chubbypb.Caller
	handle  []byte
	cancel  context.CancelCauseFunc
	waiting sync.WaitGroup // for keepAlive
}

func openDirect(ctx context.Context, servers []string, path string) (_ *directReader, err error) {
	master, err := locate(ctx, servers)
	if err != nil {
		return nil, err
	}
	d := &directReader{}
	if d.conn, err = dialDirect(master); err != nil {
		return nil, err
	}
	d.stub = chubbypb.NewChubbyClient(d.conn)
	nonce := make([]byte, 16)
	rand.Read(nonce) // it never fails
	created, err := d.stub.CreateSession(ctx, &chubbypb.CreateSessionRequest{Cell: benchCell, Nonce: nonce, As: "bench", Host: "bench"})
	if err != nil {
		return nil, errors.Join(chubbypb.Error(err), d.conn.Close())
	}
	d.caller = &chubbypb.Caller{Session: created.GetSession(), Epoch: created.GetEpoch()}
	alive, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	d.cancel = cancel
	d.waiting.Go(func() { d.keepAlive(alive) })
	opened, err := d.stub.Open(ctx, &chubbypb.OpenRequest{
		Caller: d.caller, Mutation: &chubbypb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: path, Read: true,
	})
	if err != nil {
		return nil, errors.Join(chubbypb.Error(err), d.close(ctx))
	}
	d.handle = opened.GetHandle()
	return d, nil
}

func dialDirect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// locate asks replicas until one names the master.
func locate(ctx context.Context, servers []string) (string, error) {
	var errs []error
	for _, server := range servers {
		conn, err := dialDirect(server)
		if err != nil {
			return "", err
		}
		reply, err := chubbypb.NewCellClient(conn).Locate(ctx, &chubbypb.LocateRequest{Cell: benchCell})
		errs = append(errs, err, conn.Close())
		if err == nil && reply.GetMasterAddress() != "" {
			return reply.GetMasterAddress(), nil
		}
	}
	return "", fmt.Errorf("no replica of %v names a master: %w", servers, errors.Join(errs...))
}

// keepAlive extends the session until ctx ends. It does not report failures: a
// read in a session that has run out does.
func (d *directReader) keepAlive(ctx context.Context) {
	var acknowledged, grant uint64
	for ctx.Err() == nil {
		reply, err := d.stub.KeepAlive(ctx, &chubbypb.KeepAliveRequest{Caller: d.caller, Acknowledged: acknowledged, Grant: grant})
		if err == nil {
			grant = max(grant, reply.GetGrant().GetNumber())
			for _, e := range reply.GetEvents() {
				acknowledged = max(acknowledged, e.GetSequence())
			}
			continue
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
}

func (d *directReader) read(ctx context.Context) error {
	reply, err := d.stub.GetContentsAndStat(ctx, &chubbypb.GetContentsAndStatRequest{Caller: d.caller, Handle: d.handle})
	if err != nil {
		return chubbypb.Error(err)
	}
	if len(reply.GetContents()) != contents {
		return fmt.Errorf("the master returned %d bytes, not %d", len(reply.GetContents()), contents)
	}
	return nil
}

// close ends the session, and waits for its goroutines.
func (d *directReader) close(ctx context.Context) error {
	_, err := d.stub.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: d.caller})
	d.cancel(errors.New("the reader is closed"))
	closeErr := d.conn.Close()
	d.waiting.Wait()
	return errors.Join(chubbypb.Error(err), closeErr)
}
