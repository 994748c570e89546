//go:build linux

package recipe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const treeDir = "/ls/local/tree"

// grow watches a tree on a host until the end of the test.
func (w *world) grow(from client.Sessions, o TreeOptions) *Tree {
	w.T.Helper()
	t := ok(WatchTree(w.Ctx, from, treeDir, o))(w)
	w.T.Cleanup(t.Close)
	return t
}

// shows fails the test unless the tree has those nodes, and is as fresh, once everything has come to rest.
func (w *world) shows(t *Tree, want string, fresh bool) {
	w.T.Helper()
	pass(time.Second)
	var list []string
	nodes, bytes := 0, 0
	for name, node := range t.All() {
		nodes, bytes = nodes+1, bytes+len(node.Contents)
		text := name
		switch {
		case node.Err != nil:
			text += "!" + api.CodeOf(node.Err).String()
		case node.Stat.Kind == api.Directory:
			text += "/"
		default:
			text += "=" + string(node.Contents)
		}
		if got, ok := t.Get(name); !ok || !got.equal(node) {
			w.T.Errorf("Get(%s): %+v, %v", name, got, ok)
		}
		list = append(list, text)
	}
	if got := strings.Join(list, " "); got != want || t.Fresh() != fresh {
		w.T.Errorf("the tree is %q, fresh %v (%v); want %q, %v", got, t.Fresh(), t.Err(), want, fresh)
	}
	if n, b := t.Size(); n != nodes || b != bytes {
		w.T.Errorf("%d nodes with %d bytes; want %d with %d", n, b, nodes, bytes)
	}
}

// What is below a directory is here, whatever happens to it, the session and the cell.
func TestTree(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		c := w.Client("writer")
		keeper := w.Keep("h1")
		tree := w.grow(keeper, TreeOptions{})
		w.shows(tree, "", true)
		changed := tree.Changed()
		w.Mkdir(c, treeDir)
		w.Put(c, treeDir+"/b", "1")
		w.Mkdir(c, treeDir+"/a")
		w.Mkdir(c, treeDir+"/a/d")
		w.Put(c, treeDir+"/a/d/f", "2")
		w.Put(c, treeDir+"/a.c", "3")
		<-changed
		w.shows(tree, "./ a/ a/d/ a/d/f=2 a.c=3 b=1", true)
		for _, absent := range []string{"", "/", "a/", "a//d", "b/x", "x", "./a", treeDir} {
			if _, ok := tree.Get(absent); ok {
				t.Errorf("there is %q", absent)
			}
		}
		w.Put(c, treeDir+"/a/d/f", "4")
		w.Rm(c, treeDir+"/b")
		w.Mkdir(c, treeDir+"/b")
		w.shows(tree, "./ a/ a/d/ a/d/f=4 a.c=3 b/", true)
		w.Succeed()
		w.Put(c, treeDir+"/b/g", "5")
		w.shows(tree, "./ a/ a/d/ a/d/f=4 a.c=3 b/ b/g=5", true)
		w.OK(c.RemoveAll(w.Ctx, treeDir+"/a"))
		w.Mkdir(c, treeDir+"/a")
		w.Put(c, treeDir+"/a/d", "6")
		w.shows(tree, "./ a/ a/d=6 a.c=3 b/ b/g=5", true)
		w.OK(keeper.Do(w.Ctx, func(c *client.Client) error { w.Expire(c.Session()); return nil }))
		w.Put(c, treeDir+"/a/d", "7")
		w.shows(tree, "./ a/ a/d=7 a.c=3 b/ b/g=5", true)
		w.OK(c.RemoveAll(w.Ctx, treeDir))
		w.shows(tree, "", true)
		w.Mkdir(c, treeDir)
		w.Put(c, treeDir+"/a", "8")
		w.shows(tree, "./ a=8", true)
		w.Cut("h1")
		w.shows(tree, "./ a=8", true) // the lease runs
		pass(api.DefaultLease)
		w.shows(tree, "./ a=8", false) // the session may be there still
		w.Put(c, treeDir+"/a", "9")
		w.Put(c, treeDir+"/b", "9")
		pass(api.DefaultGrace)
		w.shows(tree, "./ a=8", false)
		w.Heal("h1")
		pass(10 * time.Second)
		w.shows(tree, "./ a=9 b=9", true)
		tree.Close()
		w.shows(tree, "./ a=9 b=9", false)
	})
}

// A file or directory that may not be read is shown as such, does not keep others from being read, and is read once
// it may be.
func TestTreeOfStrangers(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("stranger")
		w.Mkdir(c, treeDir)
		w.Put(c, "/ls/local/acl/strangers", "stranger\n")
		acl := api.ACL{Read: "strangers", Write: "strangers", Change: "strangers"}
		for name, o := range map[string]client.OpenOptions{
			"d": {Write: true, Create: client.NewDirectory, ACL: acl}, "f": {Write: true, Create: client.NewFile, ACL: acl, Contents: []byte("1")},
		} {
			h := ok(c.Open(w.Ctx, treeDir+"/"+name, o))(w)
			w.OK(h.Close(w.Ctx))
		}
		w.Put(c, treeDir+"/d/g", "2")
		tree := w.grow(w.ConfigOf("h1"), TreeOptions{})
		w.shows(tree, "./ d!PermissionDenied f!PermissionDenied", true)
		w.Put(c, "/ls/local/acl/strangers", "stranger\nh1\n")
		pass(verify)
		w.shows(tree, "./ d/ d/g=2 f=1", true)
		h := ok(c.Open(w.Ctx, treeDir+"/d", client.OpenOptions{ChangeACL: true}))(w)
		w.Put(c, "/ls/local/acl/others", "stranger\n")
		ok(h.SetACL(w.Ctx, api.ACL{Read: "others", Write: "others", Change: "others"}))(w)
		w.shows(tree, "./ d!PermissionDenied f=1", true)
	})
}

// An ephemeral directory is not kept from going, nor an ephemeral file.
func TestTreeKeepsNothing(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, treeDir)
		owner := ok(c.Open(w.Ctx, treeDir+"/hidden", client.OpenOptions{Write: true, Create: client.NewDirectory, Ephemeral: true}))(w)
		mine := ok(c.Open(w.Ctx, treeDir+"/mine", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("up")}))(w)
		tree := w.grow(w.ConfigOf("h1"), TreeOptions{})
		w.shows(tree, "./ hidden!InvalidArgument mine=up", true)
		w.OK(owner.Close(w.Ctx))
		w.OK(mine.Close(w.Ctx))
		w.shows(tree, "./", true)
		wants(t, "the ephemeral directory is kept", second(c.Open(w.Ctx, treeDir+"/hidden", client.OpenOptions{Read: true})), api.NotFound)
	})
}

// What goes, or becomes another thing, between two looks does no harm.
func TestTreeOfWhatGoes(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, treeDir)
		w.Slow("h1", 100*time.Millisecond)
		cfg := w.ConfigOf("h1")
		cfg.NoCache = true // nobody waits for the slow host
		tree := w.grow(cfg, TreeOptions{OnError: func(err error) { t.Error(err) }})
		for range *rounds {
			w.Put(c, treeDir+"/a", "1")
			pass(rand.N(700 * time.Millisecond))
			w.Rm(c, treeDir+"/a")
			w.Mkdir(c, treeDir+"/a")
			pass(rand.N(700 * time.Millisecond))
			w.Rm(c, treeDir+"/a")
		}
		w.Mkdir(c, treeDir+"/a")
		w.Put(c, treeDir+"/a/b", "2")
		pass(5 * time.Second)
		w.shows(tree, "./ a/ a/b=2", true)
	})
}

// More than is to be kept is an error, and what was there stays, until there is less.
func TestTreeTooLarge(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, treeDir)
		w.Mkdir(c, treeDir+"/d")
		w.Put(c, treeDir+"/d/a", "12345")
		faults := make(chan error, 100)
		tree := w.grow(w.ConfigOf("h1"), TreeOptions{MaxNodes: 5, MaxBytes: 10, OnError: func(err error) { faults <- err }})
		if n, bytes := tree.Size(); n != 3 || bytes != 5 || !tree.Fresh() { // it is whole at once
			t.Errorf("%d nodes with %d bytes, fresh %v", n, bytes, tree.Fresh())
		}
		w.shows(tree, "./ d/ d/a=12345", true)
		w.Put(c, treeDir+"/d/a", "12345678901")
		w.shows(tree, "./ d/ d/a=12345", false)
		if len(faults) == 0 || !errors.Is(<-faults, api.TooLarge) || !errors.Is(tree.Err(), api.TooLarge) {
			t.Errorf("too many bytes: %v", tree.Err())
		}
		w.Put(c, treeDir+"/d/a", "1234567890")
		pass(configPause)
		w.shows(tree, "./ d/ d/a=1234567890", true)
		if tree.Err() != nil {
			t.Error(tree.Err())
		}
		for i := range 3 {
			w.Mkdir(c, fmt.Sprint(treeDir, "/d/", i))
		}
		pass(time.Second)
		if n, _ := tree.Size(); n > 5 || tree.Fresh() || !errors.Is(tree.Err(), api.TooLarge) {
			t.Errorf("too many directories: %d nodes, fresh %v, %v", n, tree.Fresh(), tree.Err())
		}
		for i := range 3 {
			w.Rm(c, fmt.Sprint(treeDir, "/d/", i))
		}
		pass(configPause)
		w.shows(tree, "./ d/ d/a=1234567890", true)
		wants(t, "too large from the beginning", second(WatchTree(w.Ctx, w.ConfigOf("h2"), treeDir, TreeOptions{MaxNodes: 2})), api.TooLarge)
		wants(t, "a file", second(WatchTree(w.Ctx, w.ConfigOf("h2"), treeDir+"/d/a", TreeOptions{})), api.NotDirectory)
		wants(t, "a negative bound", second(WatchTree(w.Ctx, w.ConfigOf("h2"), treeDir, TreeOptions{MaxNodes: -1})), api.InvalidArgument)
	})
}

// gardeners change a tree at random, and remember what they have written.
type gardeners struct {
	*world
	mu      sync.Mutex // guards written
	written map[api.Generation]string
}

// act does one thing at random. What fails, fails because of another's act.
func (g *gardeners) act(c *client.Client, r *rand.Rand) {
	ctx := g.brief(time.Minute)
	dir := treeDir
	for range r.IntN(3) {
		dir += "/" + string(rune('a'+r.IntN(3)))
	}
	path := dir + "/" + string(rune('a'+r.IntN(4)))
	switch n := r.IntN(20); {
	case n == 0:
		_ = c.RemoveAll(ctx, dir)
	case n == 1:
		_ = c.RemoveAll(ctx, path)
	case n < 4:
		_ = c.Delete(ctx, path)
	case n < 7:
		_ = c.MkdirAll(ctx, path)
	default:
		_ = c.MkdirAll(ctx, dir) // a file may be in the way
		text := strings.Repeat(fmt.Sprint(r.Uint32()), 1+r.IntN(3))
		if stat, err := c.Put(ctx, path, []byte(text)); err == nil {
			g.mu.Lock()
			g.written[stat.Content] = text
			g.mu.Unlock()
		}
	}
}

// observe compares each version of the tree with those before, until the tree is closed.
func (g *gardeners) observe(t *Tree, until <-chan struct{}) (versions int) {
	newest := map[string]api.Stat{}
	read := map[api.Generation]string{}
	for over := false; !over; {
		changed := t.Changed()
		for name, node := range t.All() {
			was, is := newest[name], node.Stat
			if is.Instance < was.Instance || is.Instance == was.Instance && is.Content < was.Content {
				g.T.Errorf("%s goes back from %d of %d to %d of %d", name, was.Content, was.Instance, is.Content, is.Instance)
			}
			newest[name] = is
			if is.Kind == api.Directory {
				continue
			}
			if before, ok := read[is.Content]; ok && before != string(node.Contents) || is.Size != len(node.Contents) {
				g.T.Errorf("%s of %d is %q and %q", name, is.Content, before, node.Contents)
			}
			read[is.Content] = string(node.Contents)
			versions++
		}
		select {
		case <-changed:
		case <-until:
			over = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for generation, text := range read {
		if want, ok := g.written[generation]; ok && want != text {
			g.T.Errorf("generation %d is %q; written was %q", generation, text, want)
		}
	}
	return versions
}

// walk lists a tree at the cell, in the short form of shows.
func (w *world) walk(c *client.Client, path, name string, list []string) []string {
	w.T.Helper()
	children, err := c.List(w.Ctx, path)
	if errors.Is(err, api.NotFound) && name == "." {
		return list
	}
	w.OK(err)
	list = append(list, name+"/")
	for _, stat := range children {
		base := stat.Path.Base()
		below := strings.TrimPrefix(name+"/"+base, "./")
		if stat.Kind == api.Directory {
			list = w.walk(c, path+"/"+base, below, list)
			continue
		}
		list = append(list, below+"="+w.Cat(c, path+"/"+base))
	}
	return list
}

// However writers change it, masters fail and sessions end: no version goes back, none is a mix, and in the end the
// tree is what there is.
func TestTreeRandom(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		g := &gardeners{world: w, written: map[api.Generation]string{}}
		c := w.Client("reader")
		var trees []*Tree
		var observers, writers sync.WaitGroup
		over, versions := make(chan struct{}), make([]int, 2)
		keeper := w.Keep("h0")
		for i, from := range []client.Sessions{keeper, w.ConfigOf("h1")} {
			tree := w.grow(from, TreeOptions{})
			trees = append(trees, tree)
			observers.Go(func() { versions[i] = g.observe(tree, over) })
		}
		for i := range 3 {
			writers.Go(func() {
				c, r := w.Client(fmt.Sprint("writer", i)), rand.New(rand.NewPCG(rand.Uint64(), 1))
				for range 2 * *rounds {
					g.act(c, r)
					pass(time.Duration(r.IntN(300)) * time.Millisecond)
				}
			})
		}
		writing := make(chan struct{})
		go func() { writers.Wait(); close(writing) }()
		for n, busy := 0, true; busy; n++ {
			select {
			case <-writing:
				busy = false
			case <-time.After(rand.N(6 * time.Second)):
				switch n % 4 {
				case 0:
					w.Succeed()
				case 1:
					_ = keeper.Do(w.Ctx, func(c *client.Client) error { w.Expire(c.Session()); return nil })
				case 2:
					w.Cut("h1")
					pass(rand.N(20 * time.Second))
					w.Heal("h1")
				}
			}
		}
		w.Settle()
		close(over)
		observers.Wait()
		want := strings.Join(w.walk(c, treeDir, ".", nil), " ")
		for i, tree := range trees {
			w.shows(tree, want, true)
			if versions[i] < *rounds {
				t.Errorf("only %d versions were seen", versions[i])
			}
		}
	})
}
