package promsd

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

const metaPrefix = "__meta_chubby_"

// group is a target group, as Prometheus reads it. Each has one target, since labels differ.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// listing is one version of a list.
type listing struct {
	text    []byte // the target groups, as JSON
	targets int
	skipped int // files without a usable address
}

// listings ranges over the versions of a list: the first at once, another when it has changed.
func (j Job) listings(ctx context.Context, c *client.Client) iter.Seq2[listing, error] {
	if j.Services {
		return convert(recipe.WatchEndpoints(ctx, c, j.Path), j.ofEndpoints)
	}
	return convert(recipe.WatchMembers(ctx, c, j.Path), j.ofMembers)
}

func convert[T any](versions iter.Seq2[[]T, error], list func([]T) (listing, error)) iter.Seq2[listing, error] {
	return func(yield func(listing, error) bool) {
		for all, err := range versions {
			var l listing
			if err == nil {
				l, err = list(all)
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

func (j Job) ofMembers(members []recipe.Member) (listing, error) {
	b := builder{job: j}
	for _, m := range members {
		b.add(parseEndpoint(m.Value), map[string]string{"name": m.Name, "host": m.Host})
	}
	return b.listing()
}

func (j Job) ofEndpoints(endpoints []recipe.Endpoint) (listing, error) {
	b := builder{job: j}
	for _, e := range endpoints {
		b.add(e, nil)
	}
	return b.listing()
}

// parseEndpoint reads the value of a member: an address, or JSON of a recipe.Endpoint. What is neither
// has no address.
func parseEndpoint(value []byte) (e recipe.Endpoint) {
	value = bytes.TrimSpace(value)
	if !bytes.HasPrefix(value, []byte("{")) {
		return recipe.Endpoint{Address: string(value)}
	}
	if json.Unmarshal(value, &e) != nil {
		return recipe.Endpoint{}
	}
	return e
}

// builder makes a listing.
type builder struct {
	job     Job
	groups  []group
	skipped int
}

// add adds a target. The labels of about are put behind the prefix; empty ones are left out.
func (b *builder) add(e recipe.Endpoint, about map[string]string) {
	if !usable(e.Address) {
		b.skipped++
		return
	}
	labels := maps.Clone(b.job.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	meta := func(name, value string) {
		if _, taken := labels[metaPrefix+name]; value != "" && !taken {
			labels[metaPrefix+name] = strings.ToValidUTF8(value, string(utf8.RuneError))
		}
	}
	meta("job", b.job.Name)
	meta("path", b.job.Path)
	for name, value := range about {
		meta(name, value)
	}
	if e.Weight != 0 {
		meta("weight", strconv.Itoa(e.Weight))
	}
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		meta("metadata_"+labelKey(key), e.Metadata[key])
	}
	b.groups = append(b.groups, group{Targets: []string{e.Address}, Labels: labels})
}

func (b *builder) listing() (listing, error) {
	groups := b.groups
	if groups == nil {
		groups = []group{} // not "null": the format is a list
	}
	text, err := json.MarshalIndent(groups, "", "  ")
	return listing{text: append(text, '\n'), targets: len(groups), skipped: b.skipped}, err
}

// usable reports whether Prometheus can have the address of a target: it has no path, and no scheme.
func usable(address string) bool {
	return address != "" && printable(address) && !strings.ContainsAny(address, "/ ")
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// labelKey makes a key of metadata a part of a label's name.
func labelKey(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}
