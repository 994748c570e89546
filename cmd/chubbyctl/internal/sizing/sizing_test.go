package sizing

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"pgregory.net/rapid"
)

// round are costs that can be reckoned with by hand.
func round() Costs {
	act := func(n float64) Cost {
		return Cost{Master: n * 1e6, Follower: n * 5e5, Clients: n * 1000, Replica: n * 100, Log: n * 300}
	}
	read := act(1)
	read.Replica, read.Log = 0, 0
	return Costs{
		Base:    Cost{Memory: 50e6, Disk: 1e6, MasterCores: 0.01, FollowerCores: 0.005, Replica: 10},
		Session: Cost{Memory: 3000, Snapshot: 200}, Program: Cost{Memory: 90_000}, Handle: Cost{Memory: 500}, Node: Cost{Memory: 400, Snapshot: 100},
		Byte: Cost{Memory: 1.5, Snapshot: 1}, Lock: Cost{Memory: 300, Snapshot: 60}, Copy: Cost{Memory: 250},
		Write: act(1), Read: read, Turn: act(2), KeepAlive: Cost{Master: 5e4, Clients: 150}, Event: Cost{Master: 1e4, Clients: 80},
		WriteBytes: 256, MostWrites: 5000, MostEntries: 500, Interval: 6.5,
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// What a small cell needs, added up by hand.
func TestNeed(t *testing.T) {
	c := Cell{Replicas: 3, Sessions: 650, Programs: 600, Handles: 2, Cached: 4, Nodes: 1000, Bytes: 256, Locks: 100, Writes: 20, Reads: 100, Turns: 10, Watchers: 5}
	n := c.Need(round())
	for _, one := range []struct {
		name      string
		got, want float64
	}{
		{"memory", float64(n.Memory), 50e6 + 650*3000 + 600*90_000 + 1300*500 + 2600*250 + 1000*400 + 256000*1.5 + 100*300},
		{"connections", float64(n.Connections), 1200},
		{"KeepAlives", n.KeepAlives, 100},
		{"lease", n.Lease, 12},
		{"cores of the master", n.MasterCores, 0.01 + 20*0.001 + 100*0.001 + 10*0.002 + 100*5e-5 + 100*1e-5},
		{"cores of another", n.FollowerCores, 0.005 + 20*0.0005 + 100*0.0005 + 10*0.001},
		{"network of the master", float64(n.MasterNetwork), 2*10 + 20*(1000+200) + 100*1000 + 10*(2000+400) + 100*150 + 100*80},
		{"network of another", float64(n.FollowerNetwork), 10 + 20*100 + 10*200},
		{"disk", float64(n.Disk), 3*(650*200+1000*100+256000+100*60) + 1e6 + 3*4096*300},
	} {
		if !near(one.got, one.want) {
			t.Errorf("%s is %v, want %v", one.name, one.got, one.want)
		}
	}
	var memory, disk, cores float64
	for _, p := range n.Parts {
		memory, disk, cores = memory+float64(p.Memory), disk+float64(p.Disk), cores+p.Cores
	}
	if !near(memory, float64(n.Memory)) || !near(disk, float64(n.Disk)) || !near(cores, n.MasterCores) {
		t.Errorf("the parts are %v, %v and %v together; want %v, %v and %v", memory, disk, cores, n.Memory, n.Disk, n.MasterCores)
	}
	if len(n.Notes) != 1 || !strings.Contains(n.Notes[0], "caches") {
		t.Errorf("%q", n.Notes)
	}
}

// Larger contents are in the log and on the network; a write that is smaller than what was measured is no less than nothing.
func TestContentsCount(t *testing.T) {
	small, large := Cell{Replicas: 5, Writes: 10, Bytes: 0}, Cell{Replicas: 5, Writes: 10, Bytes: 10_000}
	few, much := small.Need(round()), large.Need(round())
	if more := float64(much.MasterNetwork - few.MasterNetwork); !near(more, 10*(10_000+4*(10_000-256+100))) {
		t.Errorf("10 writes of 10,000 bytes more are %v bytes on the network of the master", more)
	}
	if more := much.Disk - few.Disk; more < logEntries*9_000 {
		t.Errorf("the log needs %v bytes more for contents of 10,000", more)
	}
}

// Very many sessions get longer leases, and the KeepAlives are no more than a master wants, until leases are as long as they can be.
func TestLeasesGrow(t *testing.T) {
	for sessions, want := range map[int][2]float64{13_000: {2000, 12}, 26_000: {2000, 24}, 13_000_000: {0, api.MaxLease.Seconds()}} {
		n := Cell{Replicas: 5, Sessions: sessions}.Need(round())
		if n.Lease != want[1] || want[0] > 0 && !near(n.KeepAlives, want[0]) || want[0] == 0 && n.KeepAlives <= 2000 {
			t.Errorf("%d sessions send %v KeepAlives a second, with leases of %v s; want %v", sessions, n.KeepAlives, n.Lease, want)
		}
	}
}

// More of anything never needs less of anything.
func TestMoreNeedsMore(t *testing.T) {
	costs, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	number := rapid.IntRange(0, 1_000_000)
	rapid.Check(t, func(t *rapid.T) {
		c := Cell{
			Replicas: rapid.IntRange(1, 9).Draw(t, "replicas"), Sessions: number.Draw(t, "sessions"), Programs: number.Draw(t, "programs"), Handles: rapid.IntRange(0, 100).Draw(t, "handles"),
			Cached: rapid.IntRange(0, 100).Draw(t, "cached"), Nodes: number.Draw(t, "nodes"), Bytes: rapid.Int64Range(0, api.MaxContents-1).Draw(t, "bytes"), Locks: number.Draw(t, "locks"),
			Writes: float64(rapid.IntRange(0, 10_000).Draw(t, "writes")), Reads: float64(number.Draw(t, "reads")), Turns: float64(rapid.IntRange(0, 10_000).Draw(t, "turns")), Watchers: rapid.IntRange(0, 100).Draw(t, "watchers"),
		}
		more := c
		for _, grow := range rapid.SliceOfN(rapid.IntRange(0, 10), 1, 5).Draw(t, "grow") {
			[]func(){
				func() { more.Sessions++ }, func() { more.Handles++ }, func() { more.Cached++ }, func() { more.Nodes++ }, func() { more.Bytes = min(more.Bytes+1, api.MaxContents) },
				func() { more.Locks++ }, func() { more.Writes++ }, func() { more.Reads++ }, func() { more.Turns++ }, func() { more.Watchers++ }, func() { more.Programs++ },
			}[grow]()
		}
		if fault := more.Validate(); fault != "" {
			t.Fatal(fault)
		}
		was, is := c.Need(costs), more.Need(costs)
		const slack = 1 - 1e-9 // of numbers that are added in the same order
		for _, one := range [][2]float64{
			{float64(was.Memory), float64(is.Memory)}, {float64(was.Disk), float64(is.Disk)},
			{was.MasterCores, is.MasterCores}, {was.FollowerCores, is.FollowerCores},
			{float64(was.MasterNetwork), float64(is.MasterNetwork)}, {float64(was.FollowerNetwork), float64(is.FollowerNetwork)},
		} {
			if one[1] < one[0]*slack || math.IsNaN(one[1]) {
				t.Fatalf("%+v needs %+v, and %+v less: %+v", c, was, more, is)
			}
		}
	})
}

// What cannot be is refused.
func TestValidate(t *testing.T) {
	good := Cell{Replicas: 5}
	if fault := good.Validate(); fault != "" {
		t.Error(fault)
	}
	for name, spoil := range map[string]func(*Cell){
		"no replica": func(c *Cell) { c.Replicas = 0 }, "a negative number": func(c *Cell) { c.Nodes = -1 }, "a negative rate": func(c *Cell) { c.Reads = -1 },
		"no number": func(c *Cell) { c.Writes = math.NaN() }, "infinite": func(c *Cell) { c.Turns = math.Inf(1) }, "too large a file": func(c *Cell) { c.Bytes = api.MaxContents + 1 },
		"absurd": func(c *Cell) { c.Watchers = math.MaxInt },
	} {
		c := good
		spoil(&c)
		if c.Validate() == "" {
			t.Errorf("%s: %+v is taken", name, c)
		}
	}
}

// The costs that chubbyctl reckons with are those that docs/sizing.md tells of, and were measured.
func TestCostsAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/sizing.json")
	if err != nil || !bytes.Equal(page, measured) {
		t.Errorf("docs/sizing.json is not costs.json (%v); run make sizing", err)
	}
	c, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]float64{
		"memory of a replica": c.Base.Memory, "disk of a replica": c.Base.Disk, "memory of a session": c.Session.Memory, "snapshot of a session": c.Session.Snapshot, "memory of a handle": c.Handle.Memory, "memory of a program": c.Program.Memory,
		"memory of a node": c.Node.Memory, "snapshot of a node": c.Node.Snapshot, "memory of a byte": c.Byte.Memory, "snapshot of a byte": c.Byte.Snapshot, "snapshot of a lock": c.Lock.Snapshot, "memory of a copy": c.Copy.Memory,
		"processor of a write": c.Write.Master, "of another": c.Write.Follower, "network of a write": c.Write.Clients, "to another": c.Write.Replica, "log of a write": c.Write.Log,
		"processor of a read": c.Read.Master, "of a turn": c.Turn.Master, "of a KeepAlive": c.KeepAlive.Master, "of an event": c.Event.Master,
		"writes": c.MostWrites, "entries": c.MostEntries, "interval": c.Interval, "bytes written": c.WriteBytes,
	} {
		if !(n > 0) {
			t.Errorf("%s is %v: it was not measured", name, n)
		}
	}
	if c.Byte.Snapshot < 0.9 || c.Write.Log < c.WriteBytes {
		t.Errorf("a byte of contents takes %v in a snapshot, and a write of %v bytes %v in the log", c.Byte.Snapshot, c.WriteBytes, c.Write.Log)
	}
}

// What passes Validate needs no more bytes than can be counted, nor more than a number of processors.
func TestWhatIsNeededCanBeCounted(t *testing.T) {
	costs, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	const n = 1_000_000_000_000
	for _, c := range []Cell{
		{Replicas: 99, Writes: 1e300}, {Replicas: 99, Reads: 1e308}, {Replicas: 99, Turns: 1e200}, {Replicas: 99, Writes: 1e200, Watchers: n},
		{Replicas: 1, Sessions: n, Handles: n}, {Replicas: 1, Sessions: n, Cached: n}, {Replicas: 1, Programs: n}, {Replicas: 1, Nodes: n, Bytes: 256 << 10},
	} {
		if c.Validate() != "" {
			continue
		}
		need := c.Need(costs)
		for what, v := range map[string]float64{"memory": float64(need.Memory), "disk": float64(need.Disk), "network": float64(need.MasterNetwork), "network of another": float64(need.FollowerNetwork), "processors": need.MasterCores} {
			if !(v < math.MaxInt64) {
				t.Errorf("%+v: %s is %v, which is printed as %d", c, what, v, int64(v))
			}
		}
	}
}

// Programs beyond what a replica's connections are bounded to are not reckoned with without a word, each limit for itself.
func TestProgramsMeetLimits(t *testing.T) {
	for programs, want := range map[int][]string{
		0: nil, 2_000: nil, 2_001: {"max-connections-per-address"}, 20_000: {"max-connections-per-address"}, 20_001: {"max-connections-per-address", "max-connections"},
		(limitNOFILE - ownFiles) / 2: {"max-connections-per-address", "max-connections"}, limitNOFILE / 2: {"max-connections-per-address", "max-connections", "LimitNOFILE"},
	} {
		notes := Cell{Replicas: 5, Programs: programs}.Need(round()).Notes
		if len(notes) != len(want) {
			t.Errorf("%d programs: %q, want notes of %q", programs, notes, want)
			continue
		}
		for i, note := range notes {
			if !strings.HasSuffix(note, "raise "+want[i]) {
				t.Errorf("%d programs: %q, want it to end with what to raise, %s", programs, note, want[i])
			}
		}
	}
}

// Sizing says so if a session would have more handles open than it may.
func TestHandlesMeetTheirLimit(t *testing.T) {
	for handles, noted := range map[int]bool{api.MaxHandles: false, api.MaxHandles + 1: true} {
		notes := Cell{Replicas: 5, Programs: 1, Sessions: 1, Handles: handles}.Need(round()).Notes
		if slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "handles open") }) != noted {
			t.Errorf("%d handles: %q", handles, notes)
		}
	}
}

// The limits that notes name are those that a replica and its unit have.
func TestLimitsAreThoseOfReplicas(t *testing.T) {
	for file, lines := range map[string][]string{
		"deploy/packages/chubbyd.yaml":   {fmt.Sprintf("\n#max-connections: %d\n", maxConnections), fmt.Sprintf("\n#max-connections-per-address: %d\n", maxConnectionsPerAddress)},
		"deploy/systemd/chubbyd.service": {fmt.Sprintf("\nLimitNOFILE=%d\n", limitNOFILE)},
		"cell/listen.go":                 {fmt.Sprintf("\nconst ownDescriptors = %d\n", ownFiles)},
	} {
		text, err := os.ReadFile("../../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !bytes.Contains(text, []byte(line)) {
				t.Errorf("%s has no line %q", file, line)
			}
		}
	}
}

// The limit of memory in the Helm chart has room for a replica with as much of everything as the chart lets it have: what the cell may hold,
// the calls of clients, and their connections and sessions. Memory is counted once, not with garbage beside it: close to GOMEMLIMIT Go collects
// as often as it has to.
func TestChartHasRoom(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/helm/chubby/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	value := func(pattern string) float64 {
		m := regexp.MustCompile(`(?m)^` + pattern + `$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("values.yaml has no %s", pattern)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	costs, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	const mib, alive = 1 << 20, 0.5
	limit := value(`  limits:\n    memory: (\d+)Gi`) * 1024 * mib * 0.9
	programs := value(`  max-connections: (\d+)`) / connectionsOfProgram
	need := costs.Base.Memory + limit*2/5 + value(`  client-memory-mib: (\d+)`)*mib + programs*alive*(costs.Program.Memory+costs.Session.Memory)
	if need > limit {
		t.Errorf("a replica of the chart may need %.0f MiB, and GOMEMLIMIT is %.0f MiB", need/mib, limit/mib)
	}
}
