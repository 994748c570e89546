package e2e

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
)

// rawFrames is a connection of frames that reads only when it is told to.
type rawFrames struct {
	net.Conn
	in   *bufio.Reader
	last uint64
}

// greet says hello, and hears it.
func greet(conn net.Conn) (*rawFrames, error) {
	hello := make([]byte, frames.HelloSize)
	copy(hello, "chubby frames/1\n")
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	r := &rawFrames{Conn: conn, in: bufio.NewReader(conn)}
	_, err := io.ReadFull(r.in, hello)
	return r, err
}

// request appends a request.
func (r *rawFrames) request(b []byte, method string, q proto.Message) []byte {
	message, _ := proto.Marshal(q) // it can be
	r.last++
	b = frames.Header{Kind: frames.KindRequest, Call: r.last, Length: 2 + len(method) + len(message)}.Append(b)
	return append(append(append(append(b, byte(len(method))), method...), 0), message...)
}

// errCallRefused is a call that has ended with an error.
var errCallRefused = errors.New("the call was refused")

// reply reads up to the end of the next call that ends, and what that is answered. call is its place among the last
// calls that were made.
func (r *rawFrames) reply(calls int, m proto.Message) (call int, err error) {
	for {
		var head [frames.HeaderSize]byte
		if _, err := io.ReadFull(r.in, head[:]); err != nil {
			return 0, err
		}
		h := frames.ParseHeader(&head)
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(r.in, payload); err != nil {
			return 0, err
		}
		call = int(h.Call) - int(r.last) + calls - 1
		switch h.Kind {
		case frames.KindLast:
			return call, proto.Unmarshal(payload, m)
		case frames.KindStatus:
			return call, errCallRefused
		case frames.KindPing:
			if _, err := r.Write(frames.Header{Kind: frames.KindPong, Call: h.Call}.Append(nil)); err != nil {
				return 0, err
			}
		}
	}
}

// longFrame announces a request of that length, and sends a little of it.
func (a *attacker) longFrame(conn net.Conn, length int) error {
	a.done.Add(1)
	r, err := greet(conn)
	if err != nil {
		return err
	}
	if _, err := r.Write(append(frames.Header{Kind: frames.KindRequest, Call: 1, Length: length}.Append(nil), make([]byte, 1<<10)...)); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, r.in) // until it is closed
	return nil
}

// create opens so many sessions over a connection, all at a time, and returns those that there are.
func (a *attacker) create(r *rawFrames, number int) (created []*pb.Caller, err error) {
	var batch []byte
	for range number {
		nonce := make([]byte, 16)
		_, _ = rand.Read(nonce) // it never fails
		batch = r.request(batch, pb.Chubby_CreateSession_FullMethodName, &pb.CreateSessionRequest{Cell: "local", Nonce: nonce, LeaseNs: int64(a.Lease)})
	}
	if _, err := r.Write(batch); err != nil {
		return nil, err
	}
	for range number {
		var reply pb.CreateSessionReply
		_, err := r.reply(number, &reply)
		switch {
		case errors.Is(err, errCallRefused):
			a.rejected.Add(1)
		case err != nil:
			return created, err
		default:
			created = append(created, &pb.Caller{Session: reply.GetSession(), Epoch: reply.GetEpoch()})
		}
	}
	return created, nil
}

// sessions opens sessions as fast as it can, and leaves them.
func (a *attacker) sessions() error {
	const connections, atATime = 4, 50
	return a.again(connections, func(conn net.Conn) error {
		r, err := greet(conn)
		for err == nil && a.done.Load() < int64(a.Clients) {
			var created []*pb.Caller
			created, err = a.create(r, atATime)
			a.done.Add(int64(len(created)))
		}
		if err == nil {
			<-a.over
		}
		return err
	})
}

// slowReaders opens sessions that ask for events of a file, changes it again and again, and reads none of
// the news.
func (a *attacker) slowReaders() error {
	const each = 200 // sessions of a connection
	var opening, reading sync.WaitGroup
	defer reading.Wait()
	for range a.Clients / each {
		opening.Add(1)
		reading.Go(func() {
			ready := sync.OnceFunc(opening.Done)
			defer ready()
			for !a.isOver() && a.slowReader(each, ready) != nil {
				a.rejected.Add(1) // a call was refused, or sessions ended before all of them were open: with new ones, then
				<-a.pace
			}
		})
	}
	opening.Wait()
	a.say("ready")
	conn, err := a.secure()
	if err != nil {
		return err
	}
	r, err := greet(conn)
	if err != nil {
		return err
	}
	for !a.isOver() {
		err := a.change(r)
		if !errors.Is(err, errCallRefused) { // its session ends, since nobody extends the lease; and a busy replica refuses calls
			return err
		}
		a.rejected.Add(1)
	}
	return nil
}

// change writes to the file five times a second, in one session, until a call is refused or the attack is over.
func (a *attacker) change(r *rawFrames) error {
	var writer []*pb.Caller
	for len(writer) == 0 {
		var err error
		if writer, err = a.create(r, 1); err != nil {
			return err
		}
		if len(writer) == 0 {
			if a.isOver() {
				return nil
			}
			<-a.pace
		}
	}
	var handle pb.OpenReply
	open := &pb.OpenRequest{Caller: writer[0], Mutation: mutation(1), Path: a.Lock, Write: true}
	if err := r.call(pb.Chubby_Open_FullMethodName, open, &handle); err != nil {
		return err
	}
	changes := time.NewTicker(200 * time.Millisecond)
	defer changes.Stop()
	for n := uint64(2); ; n++ {
		select {
		case <-a.over:
			return nil
		case <-changes.C:
		}
		change := &pb.SetContentsRequest{Caller: writer[0], Mutation: mutation(n), Handle: handle.GetHandle(), Contents: []byte("changed")}
		if err := r.call(pb.Chubby_SetContents_FullMethodName, change, &pb.SetContentsReply{}); err != nil {
			return err
		}
	}
}

// slowReader is a connection with so many sessions that read no news. It calls ready when they are there.
func (a *attacker) slowReader(number int, ready func()) error {
	conn, err := a.secure()
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := greet(conn)
	if err != nil {
		return err
	}
	var sessions []*pb.Caller
	for len(sessions) < number && !a.isOver() {
		more, err := a.create(r, min(20, number-len(sessions)))
		if err != nil {
			return err
		}
		if sessions = append(sessions, more...); len(more) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	var batch []byte
	for _, c := range sessions {
		batch = r.request(batch, pb.Chubby_Open_FullMethodName, &pb.OpenRequest{
			Caller: c, Mutation: mutation(1), Path: a.Lock, Read: true, Create: pb.Create_CREATE_MAY, Kind: pb.Kind_KIND_FILE,
			Events: []pb.EventKind{pb.EventKind_EVENT_KIND_CONTENTS_MODIFIED},
		})
	}
	if _, err := r.Write(batch); err != nil {
		return err
	}
	for range sessions {
		if _, err := r.reply(number, &pb.OpenReply{}); err != nil {
			return err
		}
	}
	batch = nil
	for _, c := range sessions {
		batch = r.request(batch, pb.Chubby_KeepAlives_FullMethodName, &pb.KeepAliveRequest{Caller: c})
	}
	if _, err := r.Write(batch); err != nil {
		return err
	}
	a.done.Add(int64(len(sessions)))
	ready()
	<-a.over
	return nil
}

func mutation(n uint64) *pb.Mutation {
	return &pb.Mutation{Number: n, HighestIssued: n, Outstanding: []uint64{n}}
}

// call makes one call.
func (r *rawFrames) call(method string, q, reply proto.Message) error {
	if _, err := r.Write(r.request(nil, method, q)); err != nil {
		return err
	}
	_, err := r.reply(1, reply)
	return err
}

// steps sends transactions of very many empty steps, as one who shows no certificate: over HTTP/2, and over every other connection in frames. Each would take 62
// times its length if it were decoded.
func (a *attacker) steps() error {
	a.tls = a.tls.Clone()
	a.tls.Certificates = nil
	message := bytes.Repeat([]byte{3<<3 | 2, 0}, (api.MaxCommand-1<<10)/2)
	return a.again(a.Clients, func(conn net.Conn) error {
		if a.from.Load()%2 == 0 {
			return a.longTxns(conn, message)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		next := calls(pb.Chubby_Txn_FullMethodName, func(f *http2.Framer, stream uint32) error {
			var err error
			for rest := body; len(rest) > 0 && err == nil; {
				n := min(len(rest), 16<<10)
				err = f.WriteData(stream, n == len(rest), rest[:n])
				rest = rest[n:]
			}
			return err
		})
		for {
			data, err := next(1)
			if err == nil {
				_, err = conn.Write(data)
			}
			if err != nil {
				return err
			}
			a.done.Add(1)
		}
	})
}

// longTxns is steps in frames.
func (a *attacker) longTxns(conn net.Conn, message []byte) error {
	r, err := greet(conn)
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, r.in) }() // ends with the connection
	method := pb.Chubby_Txn_FullMethodName
	for call := uint64(1); ; call++ {
		b := frames.Header{Kind: frames.KindRequest, Call: call, Length: 2 + len(method) + len(message)}.Append(nil)
		if _, err := conn.Write(append(append(append(append(b, byte(len(method))), method...), 0), message...)); err != nil {
			return err
		}
		a.done.Add(1)
	}
}

// chains makes handshakes in which certificates are shown that might be the issuers of each other.
func (a *attacker) chains() error {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return err
	}
	a.tls = a.tls.Clone()
	a.tls.Certificates = []tls.Certificate{{PrivateKey: key}}
	now := time.Now()
	for n := range int64(6) {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(n + 1), Subject: pkix.Name{CommonName: "x"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
			DNSNames: []string{string(rune('a' + n))}, BasicConstraintsValid: true, IsCA: n > 0,
		}
		issuer := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), key)
		if err != nil {
			return err
		}
		a.tls.Certificates[0].Certificate = append(a.tls.Certificates[0].Certificate, der)
	}
	return a.again(a.Clients, func(conn net.Conn) error {
		a.done.Add(1)
		if _, err := conn.Read(make([]byte, 1)); err == nil { // until it is closed
			return errors.New("the replica said something")
		}
		return nil
	})
}
