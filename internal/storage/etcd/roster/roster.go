// Package roster knows who the members of a database are, as its file and its log say; it is pure.
package roster

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Roster is who the members are, as a database on disk says, and the IDs of those that were
// removed: an ID never comes back.
type Roster struct {
	Members []Member
	Gone    []string
}

// Read takes in a member as the database file has it.
func (r *Roster) Read(id, value []byte) error {
	m := membership.Member{}
	if err := json.Unmarshal(value, &m); err != nil {
		return fmt.Errorf("read the member %s: %w", id, err)
	}
	r.put(MemberOf(&m))
	return nil
}

func (r *Roster) put(m Member) {
	r.Members = append(slices.DeleteFunc(r.Members, func(o Member) bool { return o.ID == m.ID }), m)
}

// Change is a change of the members, with its number in the log.
type Change struct {
	Index uint64
	*raftpb.ConfChange
}

// Changes are those of the members up to the entry that is known to count, in the order of the log.
func Changes(entries []*raftpb.Entry, committed uint64) (out []Change, err error) {
	for _, e := range entries {
		if e.GetIndex() > committed || e.GetType() != raftpb.EntryConfChange {
			continue
		}
		c := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), c); err != nil {
			return nil, fmt.Errorf("read the change %d of the members: %w", e.GetIndex(), err)
		}
		out = append(out, Change{e.GetIndex(), c})
	}
	return out, nil
}

// Apply makes a change that the log has and the file has not.
func (r *Roster) Apply(c *raftpb.ConfChange) error {
	id := types.ID(c.GetNodeId()).String()
	at := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == id })
	switch c.GetType() {
	case raftpb.ConfChangeRemoveNode:
		if at >= 0 {
			r.Members = slices.Delete(r.Members, at, at+1)
		}
		if !slices.Contains(r.Gone, id) {
			r.Gone = append(r.Gone, id)
		}
	case raftpb.ConfChangeUpdateNode:
		var moved membership.Member
		if err := json.Unmarshal(c.GetContext(), &moved); err != nil {
			return fmt.Errorf("read the address of the member %s: %w", id, err)
		}
		if at >= 0 {
			r.Members[at].URL = MemberOf(&moved).URL
		}
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		var added membership.ConfigChangeContext
		if err := json.Unmarshal(c.GetContext(), &added); err != nil {
			return fmt.Errorf("read how the member %s was added: %w", id, err)
		}
		switch {
		case slices.Contains(r.Gone, id):
		case added.IsPromote && at >= 0:
			r.Members[at].Learner = false
		case at < 0:
			r.put(MemberOf(&added.Member))
		}
	}
	return nil
}

// Member is one of the databases that agree.
type Member struct {
	// ID is the member's for good; Name is empty until it has started once.
	ID, Name string
	// URL is where its peers reach it.
	URL string
	// Learner gets everything and does not count in a majority yet.
	Learner bool
}

// MemberOf returns a member as etcd knows it.
func MemberOf(m *membership.Member) Member {
	out := Member{ID: m.ID.String(), Name: m.Name, Learner: m.IsLearner}
	if len(m.PeerURLs) > 0 {
		out.URL = m.PeerURLs[0]
	}
	return out
}
