package raftfsm

import (
	"cmp"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// Quota returns a principal's limits: its own, or else those of api.DefaultQuota.
func (s *State) Quota(principal string) api.Quota {
	own, _ := s.quotas.Get(principal)
	usual := api.DefaultQuota()
	return api.Quota{
		Nodes: cmp.Or(own.Nodes, usual.Nodes), Bytes: cmp.Or(own.Bytes, usual.Bytes),
		Sessions: cmp.Or(own.Sessions, usual.Sessions), Handles: cmp.Or(own.Handles, usual.Handles),
		Waiters: cmp.Or(own.Waiters, usual.Waiters),
	}
}

// Quotas returns the quotas that were set, by principal.
func (s *State) Quotas() iter.Seq2[string, api.Quota] { return s.QuotasFrom("") }

// QuotasFrom returns the quotas that were set for first and later principals.
func (s *State) QuotasFrom(first string) iter.Seq2[string, api.Quota] { return s.quotas.From(first) }

// checkQuota returns QuotaExceeded if a principal may not add that much at that name.
func (s *State) checkQuota(name api.Name, principal string, more namespace.Usage) error {
	quota := s.Quota(principal)
	limit := namespace.Usage{Nodes: quota.Nodes, Bytes: quota.Bytes}
	if r := limit.Check(s.Tree.Usage(principal), more, refusal.NodeQuota, refusal.ByteQuota); r != nil {
		r.Principal = principal
		return r
	}
	return s.Tree.CheckQuota(name, more)
}

func (s *State) setQuota(c *SetQuota) Result {
	return s.operate(c.Mutation, func(string) Result {
		if c.Directory != nil {
			if _, err := s.Tree.SetQuota(*c.Directory, namespace.Usage{Nodes: c.Quota.Nodes, Bytes: c.Quota.Bytes}); err != nil {
				return refuse(err)
			}
			return Result{}
		}
		if c.Quota.Validate() != nil {
			return refuse(&refusal.Refusal{Cause: refusal.QuotaNegative, Quota: &c.Quota})
		}
		s.restoreQuota(c.Principal, c.Quota)
		return Result{}
	})
}

// restoreQuota sets a principal's quota; a quota of zeros removes it.
func (s *State) restoreQuota(principal string, q api.Quota) {
	if q == (api.Quota{}) {
		s.quotas.Delete(principal)
		return
	}
	s.quotas.Set(principal, q)
}
