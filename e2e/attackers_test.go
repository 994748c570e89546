package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker is a child that attacks a replica, by one principal from several addresses.
type attacker struct {
	task
	tls  *tls.Config
	over <-chan struct{}
	pace <-chan time.Time // when to connect anew, of those that do so again and again

	from           atomic.Int64 // connections that were begun
	done, rejected atomic.Int64 // what the attack counts
}

// attackAddresses is from how many addresses a child attacks.
const attackAddresses = 5

// attack attacks until the standard input ends, and prints once a second what it has done.
func attack(k task, over <-chan struct{}) error {
	pair, err := tls.LoadX509KeyPair(k.Files[1], k.Files[2])
	if err != nil {
		return err
	}
	authorities, err := os.ReadFile(k.Files[0])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	a := &attacker{
		task: k, over: over, pace: time.Tick(5 * time.Millisecond),
		tls: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}},
	}
	go func() { // ends with the process
		for range time.Tick(250 * time.Millisecond) {
			a.say("progress")
		}
	}()
	run := map[string]func(*attacker) error{
		"half-open": (*attacker).halfOpen, "slow headers": (*attacker).slowHeaders, "resets": (*attacker).resets,
		"prefixes": (*attacker).prefixes, "slow readers": (*attacker).slowReaders, "sessions": (*attacker).sessions,
		"steps": (*attacker).steps, "chains": (*attacker).chains,
	}[k.Attack]
	if run == nil {
		return fmt.Errorf("no attack is called %q", k.Attack)
	}
	err = run(a)
	a.say("ended")
	return err
}

func (a *attacker) say(what string) {
	line, _ := json.Marshal(note{What: what, Done: a.done.Load(), Rejected: a.rejected.Load()})
	fmt.Printf("%s\n", line)
}

func (a *attacker) isOver() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// dial connects to the replica from the next address.
func (a *attacker) dial() (net.Conn, error) {
	n := a.from.Add(1)
	from := &net.TCPAddr{IP: net.IPv4(127, byte(a.Number), 0, byte(1+n%attackAddresses))}
	d := net.Dialer{LocalAddr: from, Timeout: 5 * time.Second}
	return d.Dial("tcp", a.Target)
}

// secure connects, and shows the certificate.
func (a *attacker) secure() (net.Conn, error) {
	conn, err := a.dial()
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, a.tls)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, conn.SetDeadline(time.Time{})
}

// again does something with a connection, and once more with another, until the attack is over, from so many
// goroutines.
func (a *attacker) again(goroutines int, do func(net.Conn) error) error {
	var working sync.WaitGroup
	for range goroutines {
		working.Go(func() {
			for !a.isOver() {
				<-a.pace
				conn, err := a.secure()
				if err != nil {
					a.rejected.Add(1)
					continue
				}
				closing := make(chan struct{})
				go func() {
					select {
					case <-a.over:
					case <-closing:
					}
					conn.Close()
				}()
				if do(conn) != nil {
					a.rejected.Add(1)
				}
				close(closing)
			}
		})
	}
	working.Wait()
	return nil
}

// halfOpen opens connections that say nothing, or begin a handshake, and keeps them as long as the replica does.
func (a *attacker) halfOpen() error {
	hello, err := a.clientHello()
	if err != nil {
		return err
	}
	type open struct {
		conn net.Conn
		at   time.Time
	}
	const ours = 6 * time.Second // the replica has closed it before
	opened := make(chan open, 1<<15)
	go func() { // ends with the process
		for one := range opened {
			time.Sleep(time.Until(one.at.Add(ours)))
			one.conn.Close()
		}
	}()
	var opening sync.WaitGroup
	for range 16 {
		opening.Go(func() {
			for !a.isOver() {
				n := a.done.Add(1)
				if n > int64(a.Clients) {
					a.done.Add(-1)
					return
				}
				conn, err := a.dial()
				if err != nil {
					a.rejected.Add(1)
					continue
				}
				if n%2 == 0 {
					_, _ = conn.Write(hello) // it may be refused
				}
				opened <- open{conn, time.Now()}
			}
		})
	}
	opening.Wait()
	<-a.over
	return nil
}

// clientHello returns how a handshake begins.
func (a *attacker) clientHello() ([]byte, error) {
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, a.tls).Handshake() }() // ends when near is closed
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err := io.ReadFull(near, body)
	return append(head, body...), err
}

// slowHeaders sends the headers of a call, a byte a second.
func (a *attacker) slowHeaders() error {
	return a.again(a.Clients, func(conn net.Conn) error {
		a.done.Add(1)
		const long = 8000
		head := append([]byte(http2.ClientPreface), 0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0)
		head = append(head, byte(long>>16), byte(long>>8&0xff), byte(long&0xff), byte(http2.FrameHeaders), byte(http2.FlagHeadersEndHeaders), 0, 0, 0, 1)
		for range long {
			if _, err := conn.Write(head); err != nil {
				return err
			}
			head = []byte{0}
			time.Sleep(time.Second)
		}
		return nil
	})
}

// calls returns a function that makes calls whose headers are those of a method, as many at a time as its argument says; what
// follows the headers of each is written by a function.
func calls(method string, follow func(f *http2.Framer, stream uint32) error) func(number int) ([]byte, error) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", method}, {":authority", "cell"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // of a buffer
	}
	next := uint32(1)
	return func(number int) ([]byte, error) {
		var out bytes.Buffer
		f := http2.NewFramer(&out, nil)
		if next == 1 {
			out.WriteString(http2.ClientPreface)
			if err := f.WriteSettings(); err != nil {
				return nil, err
			}
		}
		for range number {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: next, BlockFragment: block.Bytes(), EndHeaders: true})
			if err := errors.Join(err, follow(f, next)); err != nil {
				return nil, err
			}
			next += 2
		}
		return out.Bytes(), nil
	}
}

// flood makes such calls as fast as they are taken, and reads whatever comes back.
func (a *attacker) flood(conn net.Conn, follow func(f *http2.Framer, stream uint32) error) error {
	go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
	const atATime = 500
	next := calls(pb.Chubby_GetContentsAndStat_FullMethodName, follow)
	for made := 0; a.Calls == 0 || made < a.Calls; made += atATime {
		data, err := next(atATime)
		if err != nil {
			return err
		}
		if _, err := conn.Write(data); err != nil {
			return err
		}
		a.done.Add(atATime)
	}
	<-a.over
	return nil
}

// resets begins calls and resets them at once.
func (a *attacker) resets() error {
	return a.again(a.Clients, func(conn net.Conn) error {
		return a.flood(conn, func(f *http2.Framer, stream uint32) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) })
	})
}

// prefixes begins calls with requests of 1 GiB, over HTTP/2, and over every other connection in frames.
func (a *attacker) prefixes() error {
	const long = 1 << 30
	var connections atomic.Int64
	return a.again(a.Clients, func(conn net.Conn) error {
		if connections.Add(1)%2 == 0 {
			return a.longFrame(conn, long)
		}
		return a.flood(conn, func(f *http2.Framer, stream uint32) error {
			return f.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, long))
		})
	})
}
