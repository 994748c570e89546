package raftfsm_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"pgregory.net/rapid"
)

var (
	operations = flag.Int("ops", 10_000, "how many commands TestMillion compares with the model")
	seed       = flag.Uint64("seed", 0, "the seed of TestMillion's commands; 0 chooses one")
)

// pair is a State and its model, with the same log.
type pair struct {
	model   *model
	driver  *driver
	state   raftfsm.State
	replica raftfsm.State // a second one, which is read from a snapshot now and then
	index   uint64
	term    uint64
	log     [][]byte
	terms   []uint64       // of the entries of log
	seen    map[string]int // how often each kind of command had each code
}

func newPair() *pair {
	p := &pair{model: newModel(), state: newBounded(), replica: newBounded(), term: 1, seen: map[string]int{}}
	p.driver = newDriver(p.model)
	return p
}

// newBounded returns a new state that remembers as little as its model.
func newBounded() raftfsm.State {
	s := raftfsm.NewState()
	raftfsm.BoundPast(&s, modelPast)
	return s
}

// founding is how every run begins: with a master, and a session.
func founding() []raftfsm.Command {
	c := choices{}
	d := driver{choices: c, m: newModel()}
	return []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: 1}}, d.create(), // the driver raises the level
	}
}

// run compares a State with the model over all the steps, and returns where they first differ. A panic is a difference.
func (p *pair) run(steps []step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	for _, c := range founding() {
		if err := p.do(c, false); err != nil {
			return err
		}
	}
	for i, s := range steps {
		c := p.driver.command(s)
		if err := p.do(c, s[len(s)-1] == 255); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if i%64 == 63 || i == len(steps)-1 {
			if err := p.compare(); err != nil {
				return fmt.Errorf("after step %d: %w", i, err)
			}
		}
	}
	return nil
}

// do applies a command to the state, the replica and the model; a late one was proposed in the epoch before.
func (p *pair) do(c raftfsm.Command, late bool) error {
	p.index++
	if c.NewEpoch != nil && !p.driver.rarely(3) {
		p.term++ // otherwise a replica would begin the epoch of its term twice
	}
	entry := raftfsm.Entry{Epoch: api.Epoch(p.term), Wall: int64(p.index), Commands: []raftfsm.Command{c}}
	if late {
		entry.Epoch--
	}
	data, err := entry.Encode()
	if err != nil {
		return err
	}
	p.log, p.terms = append(p.log, data), append(p.terms, p.term)
	want := p.model.apply(p.term, entry.Epoch, entry.Wall, c)
	got, err := apply(&p.state, p.index, p.term, data)
	if err != nil {
		return err
	}
	if again, err := apply(&p.replica, p.index, p.term, data); err != nil || !reflect.DeepEqual(again, got) {
		return fmt.Errorf("%s: another replica answers\n  %s\nand this one\n  %s (%w)", show(c), showResult(again), showResult(got), err)
	}
	p.driver.observe(c, want)
	p.seen[kindOf(c)+" "+want.Code().String()]++
	if want.Restored {
		p.seen["restored all"]++
	}
	for _, one := range want.Claims {
		p.seen["claim "+one.Answer.Code().String()]++
	}
	if !reflect.DeepEqual(bare(got), bare(want)) {
		return fmt.Errorf("%s\n  got  %s\n  want %s", show(c), showResult(bare(got)), showResult(bare(want)))
	}
	return nil
}

func apply(s *raftfsm.State, index, term uint64, data []byte) (raftfsm.Result, error) {
	results, err := s.ApplyData(index, term, data, maxTestLevel)
	if err != nil {
		return raftfsm.Result{}, err
	}
	return results[0], nil
}

// bare returns a result without causes and messages, in which nothing is nil.
func bare(r raftfsm.Result) raftfsm.Result {
	r.Answer = silent(r.Answer)
	r.Claims = slices.Clone(r.Claims)
	for i := range r.Claims {
		r.Claims[i].Answer = silent(r.Claims[i].Answer)
	}
	r.Claims, r.Ended, r.Free, r.Vacant, r.Delayed, r.Dying = full(r.Claims), full(r.Ended), full(r.Free), full(r.Vacant), full(r.Delayed), full(r.Dying)
	r.Left = full(r.Left)
	r.Changes, r.Revoked, r.Terminating = full(r.Changes), full(r.Revoked), full(r.Terminating)
	return r
}

func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// compare compares everything: what the state contains, whether it is sound, and whether it is the same on the other
// replica and after a snapshot, from which the other replica goes on.
func (p *pair) compare() error {
	if err := p.state.Check(); err != nil {
		return err
	}
	got, want := view(&p.state), p.model.view()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Errorf("the state is\n  %s\nand should be\n  %s", strings.Join(got[min(i, len(got)):], "\n  "), strings.Join(want[min(i, len(want)):], "\n  "))
		}
	}
	if err := compareListings(p.state.Tree); err != nil {
		return err
	}
	var snapshot bytes.Buffer
	if _, err := p.state.WriteTo(&snapshot); err != nil {
		return err
	}
	var other bytes.Buffer
	if _, err := p.replica.WriteTo(&other); err != nil || !bytes.Equal(snapshot.Bytes(), other.Bytes()) {
		return fmt.Errorf("the same log gives a different state on another replica (%w)", err)
	}
	read, err := raftfsm.ReadState(&snapshot, maxTestLevel)
	if err != nil {
		return err
	}
	if _, err := read.WriteTo(&snapshot); err != nil || !bytes.Equal(snapshot.Bytes(), other.Bytes()) {
		return fmt.Errorf("a snapshot reads back as a different one (%w)", err)
	}
	p.replica = read
	raftfsm.BoundPast(&p.replica, modelPast)
	return nil
}

// compareListings compares what the tree lists at and below each node with a look at all nodes.
func compareListings(tree namespace.Tree) error {
	all := slices.SortedFunc(tree.All(), func(a, b *namespace.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, at := range all {
		var children, locked, below []*namespace.Node
		for _, n := range all {
			if n.Name.Parent() == at.Name && n.Name != "" {
				children = append(children, n)
			}
			if n == at || strings.HasPrefix(string(n.Name), string(at.Name)+"/") {
				if below = append(below, n); len(n.Holders) > 0 {
					locked = append(locked, n)
				}
			}
		}
		slices.SortStableFunc(below, func(a, b *namespace.Node) int { return cmp.Compare(a.Name.Depth(), b.Name.Depth()) })
		var listed []*namespace.Node
		for _, n := range tree.Below(at.Name, nil) {
			listed = append(listed, n)
		}
		if !slices.Equal(listed, below) || !slices.Equal(slices.Collect(tree.Locked(at.Name)), locked) || !slices.Equal(slices.Collect(tree.Children(at.Name, "")), children) {
			return fmt.Errorf("what is listed at %q is not what is there", at.Name)
		}
		for i, n := range children {
			if !slices.Equal(slices.Collect(tree.Children(at.Name, n.Name.Base())), children[i+1:]) {
				return fmt.Errorf("the children after %q are not those that are there", n.Name)
			}
		}
	}
	return nil
}

// replay applies the whole log again to a new state, in place, and takes snapshots and, between two
// times of changes in place, copies. They stay as they are, with their indexes.
func (p *pair) replay() error {
	s := newBounded()
	s.Edit()
	snapshots, hashes := []raftfsm.State{}, []string{}
	for i, data := range p.log {
		if i%50 == 0 {
			snapshot := s.Snapshot()
			if i%100 == 50 {
				s.Settle()
				snapshot = s
				s.Edit()
			}
			hash, err := snapshot.Hash()
			if err != nil {
				return err
			}
			snapshots, hashes = append(snapshots, snapshot), append(hashes, hash)
		}
		if _, err := apply(&s, uint64(i+1), p.terms[i], data); err != nil {
			return err
		}
	}
	got, err := s.Hash()
	if err != nil {
		return err
	}
	if want, err := p.state.Hash(); err != nil || got != want {
		return fmt.Errorf("the same log again gives %s, not %s (%w)", got, want, err)
	}
	for i, snapshot := range snapshots {
		if got, err := snapshot.Hash(); err != nil || got != hashes[i] {
			return fmt.Errorf("the snapshot before entry %d changed (%w)", 50*i, err)
		}
		if err := snapshot.Check(); err != nil {
			return fmt.Errorf("an index of the snapshot before entry %d changed: %w", 50*i, err)
		}
	}
	return nil
}

func runSteps(steps []step) error {
	p := newPair()
	if err := p.run(steps); err != nil {
		return err
	}
	return p.replay()
}

// For any log, the state does the same as its model, on every replica and after every snapshot.
func TestStateAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) (s step) {
			copy(s[:], rapid.SliceOfN(rapid.Byte(), 0, len(s)).Draw(t, "choices"))
			return s
		})
		if err := runSteps(rapid.SliceOfN(one, 0, 400).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}

// episode is the number of commands after which a run begins anew: after more, most quotas and numbers are used up.
const episode = 2_500

// TestMillion compares a long run, in episodes, with the model; of a failure, TestStateAgainstModel and FuzzModel find
// what is needed for it. A million commands take less than a minute: go test -run TestMillion ./raftfsm -ops 1000000.
func TestMillion(t *testing.T) {
	begin := *seed
	if begin == 0 {
		begin = rand.Uint64()
	}
	t.Logf("go test -run TestMillion ./raftfsm -ops %d -seed %d", *operations, begin)
	seen := map[string]int{}
	for done := 0; done < *operations; done += episode {
		steps := randomSteps(begin, uint64(done), min(episode, *operations-done))
		p := newPair()
		err := p.run(steps)
		if err == nil {
			err = p.replay()
		}
		if err != nil {
			t.Fatalf("the episode at %d: %v", done, err)
		}
		for what, n := range p.seen {
			seen[what] += n
		}
	}
	made := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[what], what)
		kind, _, _ := strings.Cut(what, " ")
		made[kind] = true
	}
	everyCommand(func(name string, _ raftfsm.Command) {
		if !made[name] {
			t.Errorf("the driver made no %s in %d commands: have driver.fresh make it, and model.apply say what it does", name, *operations)
		}
	})
}

func randomSteps(seed, more uint64, n int) []step {
	r := rand.New(rand.NewPCG(seed, more))
	steps := make([]step, n)
	for i := range steps {
		for j := range steps[i] {
			steps[i][j] = byte(r.Uint32())
		}
	}
	return steps
}

// trace shows the commands of the steps.
func trace(steps []step) string {
	var b strings.Builder
	p := newPair()
	_ = p.run(steps)
	for _, data := range p.log {
		entry, err := raftfsm.DecodeEntry(data)
		if err == nil {
			fmt.Fprintf(&b, "\n  %s", show(entry.Commands[0]))
		}
	}
	return b.String()
}
