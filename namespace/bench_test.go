package namespace_test

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// benchTree returns a tree of 100,000 files in 100 directories, with 1,000
// locks held, and the names of the files.
func benchTree(b *testing.B) (namespace.Tree, []namespace.Ref) {
	b.Helper()
	tree := namespace.New(api.ACL{})
	var files []namespace.Ref
	instance := api.Generation(1)
	draw := func() api.Generation { instance++; return instance }
	create := func(name api.Name, kind api.Kind) namespace.Ref {
		n, err := tree.Create(name, namespace.Spec{Kind: kind}, draw())
		if err != nil {
			b.Fatal(err)
		}
		return n.Ref()
	}
	for d := range 100 {
		dir := api.Name(fmt.Sprintf("/service-%02d", d))
		create(dir, api.Directory)
		for f := range 1000 {
			files = append(files, create(api.Name(fmt.Sprintf("%s/replica-%03d", dir, f)), api.File))
		}
	}
	for i := range 1000 {
		by := namespace.Holder{Owner: namespace.Owner{Session: api.SessionID(i + 1), Handle: 1}}
		if _, err := tree.Acquire(files[i*100+7], by, api.Exclusive, draw); err != nil {
			b.Fatal(err)
		}
	}
	return tree, files
}

func BenchmarkGet(b *testing.B) {
	tree, files := benchTree(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := tree.Get(files[i*7919%len(files)].Name); !ok {
			b.Fatal("a file is gone")
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	full, files := benchTree(b)
	b.ReportAllocs()
	tree := full
	for i := 0; b.Loop(); i++ {
		if i%10_000 == 0 {
			tree = full // so that the size stays about the same
		}
		name := api.Name(fmt.Sprintf("%s-new-%d", files[i*7919%len(files)].Name, i))
		if _, err := tree.Create(name, namespace.Spec{Kind: api.File}, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	tree, files := benchTree(b)
	b.ReportAllocs()
	generation := api.Generation(1 << 30)
	draw := func() api.Generation { generation++; return generation }
	for i := 0; b.Loop(); i++ {
		ref := files[i*7919%len(files)/10*10] // a file whose lock is not held
		by := namespace.Holder{Owner: namespace.Owner{Session: api.SessionID(1 + i%1000), Handle: 2}}
		granted, err := tree.Acquire(ref, by, api.Exclusive, draw)
		if err == nil {
			_, err = tree.Release(ref, by.Owner, granted)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// Chubby §2.10 keeps siblings adjacent: the cost of a page of a directory
// depends on the size of the page, not on where it begins.
func BenchmarkChildren(b *testing.B) {
	tree, _ := benchTree(b)
	for _, after := range []string{"", "replica-489", "replica-989"} {
		b.Run("after="+after, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page := 0
				for range tree.Children("/service-50", after) {
					if page++; page == 10 {
						break
					}
				}
				if page != 10 {
					b.Fatalf("%d children on a page", page)
				}
			}
		})
	}
}
