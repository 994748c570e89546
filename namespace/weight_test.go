package namespace_test

import (
	"fmt"
	"hash/crc64"
	"runtime"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A tree takes no more memory than it weighs, whatever its nodes are: the master lets it weigh two fifths of what there is, and a replica that
// takes a snapshot has it twice, so that a quarter more is all that there is room for.
func TestTreeTakesWhatItWeighs(t *testing.T) {
	const nodes = 20_000
	text := func(n int, with string) string { return strings.Clone(strings.Repeat(with, n)) } // of each command its own, as it is decoded
	for what, one := range map[string]func(n int) *namespace.Node{
		"plain": func(n int) *namespace.Node {
			return &namespace.Node{ACL: api.ACL{Read: text(8, "r"), Write: text(8, "w"), Change: text(8, "c")}, Creator: text(8, "p")}
		},
		"long names of lists and creators": func(n int) *namespace.Node {
			return &namespace.Node{ACL: api.ACL{Read: text(255, "r"), Write: text(255, "w"), Change: text(255, "c")}, Creator: text(255, "p")}
		},
	} {
		t.Run(what, func(t *testing.T) {
			before := heap()
			tree := namespace.New(api.ACL{})
			weight := tree.Counts().Weight()
			for n := range nodes {
				node := one(n)
				node.Name, node.Kind, node.Instance, node.Content, node.ACLs = api.Name(fmt.Sprintf("/n%d", n)), api.File, 1, 1, 1
				if err := tree.Adopt(node, 1); err != nil {
					t.Fatal(err)
				}
			}
			took, weighs := heap()-before, tree.Counts().Weight()-weight
			t.Logf("%d nodes take %d bytes each, and weigh %d", nodes, took/nodes, weighs/nodes)
			if took > weighs*5/4 {
				t.Errorf("they take %d MiB, and weigh %d", took>>20, weighs>>20)
			}
			runtime.KeepAlive(tree)
		})
	}
}

// So do access control lists, which are kept in a second form.
func TestListsTakeWhatTheyWeigh(t *testing.T) {
	const lists = 40
	var long strings.Builder
	for n := 0; long.Len() < api.MaxContents-8; n++ { // nothing takes more beside its bytes than short names
		fmt.Fprintf(&long, "%s\n", strings.TrimLeft(string([]byte{byte('0' + n>>12&63), byte('0' + n>>6&63), byte('0' + n&63)}), "0"))
	}
	before := heap()
	tree := namespace.New(api.ACL{})
	if err := tree.Adopt(&namespace.Node{Name: api.ACLDir, Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1}, 1); err != nil {
		t.Fatal(err)
	}
	weight := tree.Counts().Weight()
	for n := range lists {
		contents := []byte(long.String())
		node := &namespace.Node{Name: namespace.ACLFile(fmt.Sprint("l", n)), Kind: api.File, Instance: 1, Content: 1, ACLs: 1, Contents: contents, Checksum: crc64.Checksum(contents, crc64.MakeTable(crc64.ECMA))}
		if err := tree.Adopt(node, 1); err != nil {
			t.Fatal(err)
		}
	}
	took, weighs := heap()-before, tree.Counts().Weight()-weight
	t.Logf("%d lists take %d KiB each, and weigh %d", lists, took/lists>>10, weighs/lists>>10)
	if took > weighs*5/4 {
		t.Errorf("they take %d MiB, and weigh %d", took>>20, weighs>>20)
	}
	runtime.KeepAlive(tree)
}
