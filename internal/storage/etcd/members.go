package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
	"github.com/everynode/everynode/internal/storage/members"
)

// memberPatience is how long a change of the members may take.
const memberPatience = 10 * time.Second

// ErrRemoved says that the others have taken this member off their list.
var ErrRemoved = errors.New("this server was removed from the cluster, and what it has counts no more")

// errStopped says that a database has ended by itself. etcd takes an answer that is meant for a
// member of before at the same address for the news that it is removed itself.
var errStopped = errors.New(
	"the database ended since another server took it for one that was removed, and none says that it was; start this " +
		"one again",
)

// ErrNotNow says that the members cannot be changed at the moment, but soon may be.
var ErrNotNow = errors.New("the servers are not ready for a change of who belongs to them")

// ErrMajority says that a member cannot be taken away because those that are left and
// answer would not be a majority.
var ErrMajority = errors.New(
	"without it the servers that answer would not be a majority: start one of the others first, or, if these are lost " +
		"for good, " +
		"stop the one that is to stay and run \"everynode members reset\" there",
)

// Members lists the members as this one knows them.
func (s *Server) Members() (out []roster.Member) {
	for _, m := range s.etcd.Server.Cluster().Members() {
		out = append(out, roster.MemberOf(m))
	}
	return out
}

// Self is this member's ID.
func (s *Server) Self() string { return s.etcd.Server.MemberID().String() }

// Leader is the leader's ID; empty while there is none that a majority follows.
func (s *Server) Leader() string {
	if id := s.etcd.Server.Leader(); id != 0 {
		return id.String()
	}
	return ""
}

// Quorum returns a context that ends once this member has known no leader for three election timeouts: what it has
// may be old from then on. After it knows a leader again, the next call returns another. That of a member that is alone
// does not end.
func (s *Server) Quorum() context.Context { return s.leadership.quorum() }

// followLeader looks whether there is a leader until ctx ends.
func (s *Server) followLeader(ctx context.Context) {
	s.leadership.follow(ctx, time.Duration(s.etcd.Config().ElectionMs)*time.Millisecond, s.led)
}

// led reports whether there is a leader. One that a server which was cut off finds counts once a majority has confirmed
// how far its database is, and it has come as far: until then it would show what was long ago.
func (s *Server) led(ctx context.Context) bool {
	switch {
	case s.Leader() == "":
		return false
	case s.leadership.cutOff().IsZero():
		return true
	}
	attempt, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	_, err := s.watermarks.Get(attempt, offline.WatermarkPrefix+s.Self())
	return err == nil // It is known to be cut off.
}

// AddLearner lets a member join that will be at the URL, and returns it. One that was
// let in before and has not started is returned as it is.
func (s *Server) AddLearner(ctx context.Context, address string) (roster.Member, error) {
	urls, err := types.NewURLs([]string{address})
	if err != nil {
		return roster.Member{}, fmt.Errorf("the address %q for the other servers cannot be used: %w", address, err)
	}
	err = s.Disputed()
	if err != nil {
		return roster.Member{}, fmt.Errorf("let a server join at %s: %w", address, err)
	}
	known := s.Members()
	if at := slices.IndexFunc(known, func(m roster.Member) bool { return m.URL == address }); at >= 0 {
		if known[at].Name == "" {
			return known[at], nil
		}
		return roster.Member{}, fmt.Errorf(
			"a server of the name %s is at %s already; if its disk is lost, run \"everynode members remove %s\" first",
			known[at].Name, address, known[at].Name,
		)
	}
	now := time.Now()
	added := membership.NewMemberAsLearner("", urls, "", &now)
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	if _, err := s.etcd.Server.AddMember(ctx, *added); err != nil {
		at := slices.IndexFunc(known, func(m roster.Member) bool { return m.Learner })
		if at >= 0 && errors.Is(err, membership.ErrTooManyLearners) {
			return roster.Member{}, fmt.Errorf(
				"%w: another server is joining, at %s; if that one has given up, run \"everynode members remove %s\" on a server",
				ErrNotNow, known[at].URL, cmp.Or(known[at].Name, known[at].ID),
			)
		}
		return roster.Member{}, fmt.Errorf("let a server join at %s: %w", address, reconfigured(err))
	}
	return roster.MemberOf(added), nil
}

// Remove takes a member off the list. It will not be one again.
func (s *Server) Remove(ctx context.Context, id string) error {
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return fmt.Errorf("%q is not the ID of a server: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	_, err = s.etcd.Server.RemoveMember(ctx, number)
	if err == nil || id == s.Self() && s.standing(id) == standsRemoved { // it may stop before it has its own answer
		return nil
	}
	return fmt.Errorf("remove the server %s: %w", id, reconfigured(err))
}

// reconfigured says what an error means for those who want to change the members.
func reconfigured(err error) error {
	switch {
	case errors.Is(err, membership.ErrTooManyLearners):
		return fmt.Errorf("%w: another server is joining", ErrNotNow)
	case errors.Is(err, etcderrors.ErrUnhealthy):
		return fmt.Errorf("%w: not all that count have been connected for five seconds", ErrNotNow)
	case errors.Is(err, etcderrors.ErrNotEnoughStartedMembers):
		return ErrMajority
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, etcderrors.ErrTimeout),
		errors.Is(err, etcderrors.ErrTimeoutDueToLeaderFail),
		errors.Is(err, etcderrors.ErrTimeoutDueToConnectionLost), errors.Is(err, etcderrors.ErrNoLeader):
		return fmt.Errorf("%w: a majority of them does not answer", ErrNotNow)
	}
	return err
}

// become takes part as a full member: at the address that is told now, and with a vote.
func (s *Server) become(ctx context.Context, address string) error {
	self := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID())
	if self == nil {
		return ErrRemoved
	}
	if !slices.Equal(self.PeerURLs, []string{address}) {
		moved := *self
		moved.PeerURLs = []string{address}
		if err := s.insist(ctx, "tell the others this server's address", func(ctx context.Context) error {
			_, err := s.etcd.Server.UpdateMember(ctx, moved)
			return err
		}); err != nil {
			return err
		}
	}
	if !s.learns() {
		return nil
	}
	klog.FromContext(ctx).Info("This server is catching up with the others")
	return s.insist(ctx, "become one of the servers that count", func(ctx context.Context) error {
		_, err := s.etcd.Server.PromoteMember(ctx, uint64(s.etcd.Server.MemberID()))
		if errors.Is(err, membership.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
}

// learns reports whether this member has no vote yet. etcd's own answer ends the database of a member that has just
// been removed.
func (s *Server) learns() bool {
	self := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID())
	return self != nil && self.IsLearner
}

// insist tries until it works, ctx ends, or the member is no more.
func (s *Server) insist(ctx context.Context, what string, try func(context.Context) error) error {
	for told := time.Now(); ; {
		attempt, cancel := context.WithTimeout(ctx, memberPatience)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(told) > memberPatience {
			told = time.Now()
			klog.FromContext(ctx).Info("Still trying", "what", what, "err", reconfigured(err).Error())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.etcd.Server.StopNotify():
			return s.stopped(ctx)
		case err := <-s.fatal.failed:
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// waitReminder is how often a member says that it waits for a majority.
const waitReminder = 10 * time.Second

// tellWaiting says for whom this member waits.
func (s *Server) tellWaiting(ctx context.Context) {
	var silent []string
	answers := s.Ask(ctx)
	for _, a := range answers {
		if a.Err != nil {
			silent = append(silent, cmp.Or(a.Name, a.URL))
		}
	}
	tellWaiting(ctx, len(answers), silent)
}

// stopped says why the database has ended by itself.
func (s *Server) stopped(ctx context.Context) error {
	if s.standing(s.Self()) == standsRemoved {
		return ErrRemoved
	}
	if s.peers != nil {
		b := &before{peers: s.peers, has: offline.Data{Member: s.Self()}}
		b.has.Members = s.Members()
		self, others := b.others()
		if slices.ContainsFunc(b.ask(ctx, self, others), func(h heard) bool { return h.removed }) {
			return ErrRemoved
		}
	}
	return errStopped
}

// standing tells how a member stands, as this one knows it.
func (s *Server) standing(id string) string {
	number, err := types.IDFromString(id)
	switch cluster := s.etcd.Server.Cluster(); {
	case err != nil:
		return standsUnknown
	case s.etcd.Server.IsIDRemoved(uint64(number)):
		return standsRemoved
	case cluster.Member(number) != nil:
		return standsMember
	}
	return standsUnknown
}

// explain says of what ended the database what it means among members.
func (s *Server) explain(err error) error {
	if s.peers != nil && strings.Contains(err.Error(), "is out of range [lastIndex(") {
		return fmt.Errorf("the database of this server is older than what it had before: an old disk or copy was put back; "+
			"run \"everynode members remove %s\" on another server, move the folder etcd of this one away, and join again (%w)",
			s.peers.Name, err)
	}
	return err
}

// initialCluster is how etcd is told at its first start who the members are. Their
// names mean nothing there, but must differ.
func initialCluster(members []roster.Member, name, address string) string {
	var out []string
	for _, m := range members {
		if m.URL == address {
			out = append(out, name+"="+m.URL)
		} else {
			out = append(out, "member-"+m.ID+"="+m.URL)
		}
	}
	return strings.Join(out, ",")
}

// turnKey is what each turn of the control loops writes again.
const turnKey = "/everynode/turn"

// TakeTurn begins a turn, which ends the one before, if a key is still as it was at a
// revision: the Lease of the election. So turns come in the order in which that changed hands.
func (s *Server) TakeTurn(ctx context.Context, lease string, revision int64) (*members.Turn, error) {
	if s.watermarks == nil {
		return nil, errors.New("a server that is alone takes no turns")
	}
	return kv.TakeTurn(ctx, s.watermarks, turnKey, s.Self(), lease, revision)
}
