package cell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/backup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// slowly has somebody read a backup who does something before each part.
type slowly struct {
	bytes.Buffer
	before func()
}

func (s *slowly) Write(p []byte) (int, error) {
	s.before()
	return s.Buffer.Write(p)
}

// A backup is the cell at the moment of its beginning, whatever changes while it is taken.
func TestBackupIsOfOneMoment(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		const files = 40
		contents := bytes.Repeat([]byte("x"), 32<<10) // ten parts
		var handles []*client.Handle
		for i := range files {
			h := open(t, ctx, cl, fmt.Sprintf("/ls/local/f%02d", i), 0)
			if _, err := h.SetContents(ctx, contents); err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		acquire(t, ctx, handles[7])
		i := 0
		out := slowly{before: func() { // every part comes after a change
			if _, err := handles[i%files].SetContents(ctx, []byte("later")); err != nil {
				t.Error(err)
			}
			i++
		}}
		if err := cl.Cell().Backup(ctx, &out); err != nil {
			t.Fatal(err)
		}
		b, err := backup.Read(&out.Buffer)
		if err != nil {
			t.Fatal(err)
		}
		if i < 5 || b.Cell != "local" || b.Sessions != 1 || b.Locks != 1 || b.Contents < files*32<<10 {
			t.Errorf("%d parts: %+v", i, b.About)
		}
		for i := range files {
			node, ok := b.State.Tree.Get(api.Name(fmt.Sprintf("/f%02d", i)))
			if !ok || !bytes.Equal(node.Contents, contents) || (len(node.Holders) == 1) != (i == 7) {
				t.Errorf("f%02d is another in the backup", i)
			}
		}
	})
}

// A backup of which an answer is lost goes on; one of an earlier master, or that nobody asks for, does not.
func TestBackupParts(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		for i := range 20 {
			if _, err := open(t, ctx, cl, fmt.Sprintf("/ls/local/f%02d", i), 0).SetContents(ctx, bytes.Repeat([]byte("x"), 32<<10)); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := grpc.NewClient("passthrough:///"+c.Master()+":7421", grpc.WithContextDialer(c.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		chubby := pb.NewChubbyClient(conn)
		read := func(id, part uint64) (*pb.BackupReply, error) {
			reply, err := chubby.Backup(ctx, &pb.BackupRequest{Cell: "local", Backup: id, Part: part})
			return reply, pb.Error(err)
		}
		const id = 7
		first, err := read(id, 1)
		if err != nil || first.GetLast() {
			t.Fatal(first.GetLast(), err)
		}
		if again, err := read(id, 1); err != nil || !bytes.Equal(again.GetData(), first.GetData()) {
			t.Error("the first part again:", err)
		}
		second, err := read(id, 2)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := read(id, 2); err != nil || !bytes.Equal(again.GetData(), second.GetData()) {
			t.Error("the last part again:", err)
		}
		for name, part := range map[string]uint64{"an earlier part": 1, "a later one": 4, "none": 0} {
			if _, err := read(id, part); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := read(8, 1); err != nil {
			t.Error("a second backup:", err)
		}
		if _, err := read(9, 1); !errors.Is(err, api.Unavailable) {
			t.Error("a third one:", err)
		}
		time.Sleep(31 * time.Second)
		if _, err := read(id, 3); !errors.Is(err, api.NotFound) {
			t.Error("nobody has asked for it for long:", err)
		}
		var all sync.WaitGroup
		for n := range uint64(8) { // at once: each is answered, or refused
			all.Go(func() { _, _ = read(10+n/4, 1+n%2) })
		}
		all.Wait()
	})
}

// The master changes while a backup is taken: the backup fails, and does not go on with another state.
func TestBackupOverAFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		for i := range 20 {
			if _, err := open(t, ctx, cl, fmt.Sprintf("/ls/local/f%02d", i), 0).SetContents(ctx, bytes.Repeat([]byte("x"), 32<<10)); err != nil {
				t.Fatal(err)
			}
		}
		once := sync.OnceFunc(func() {
			c.FailOver()
			if err := dial(t, ctx, c, "another", client.Config{}).Cell().Backup(ctx, &bytes.Buffer{}); err != nil {
				t.Error("another one, meanwhile:", err)
			}
		})
		if err := cl.Cell().Backup(ctx, &slowly{before: once}); !errors.Is(err, api.NotFound) {
			t.Error(err)
		}
		if err := cl.Cell().Backup(ctx, &bytes.Buffer{}); err != nil {
			t.Error("once more:", err)
		}
	})
}
