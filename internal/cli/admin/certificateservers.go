package admin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/members"
)

// beginPatience is how long the servers may take to begin again, one after another.
const beginPatience = 5 * time.Minute

// peerRotation is the replacement of the authority of the servers' databases.
type peerRotation struct {
	rotation
	patience time.Duration
}

func (r peerRotation) keys() string { return filepath.Join(r.dataDir, "peers") }

func (r peerRotation) run(ctx context.Context, finish, force bool) error {
	if finish {
		return r.finish(ctx, force)
	}
	// Who has not forgotten the one before would have to trust one that it does not know.
	if list, err := ListMembers(ctx, r.dataDir); err == nil {
		if old := outdated(list); len(old) > 0 {
			return fmt.Errorf(
				"%s still trust the authority before this one; they begin again by themselves when all servers are ready: wait "+
					"for that, \"everynode members\" shows it",
				strings.Join(old, ", "),
			)
		}
	}
	if err := pki.RotatePeers(r.keys(), r.now); err != nil {
		return err
	}
	fmt.Fprintf(
		r.out,
		"A new authority signs from now on. The old one is still trusted.\nThe other servers take the new one within "+
			"seconds. Then: %s --servers --finish\n",
		r.command,
	)
	return nil
}

func (r peerRotation) finish(ctx context.Context, force bool) error {
	if !force {
		if err := r.ready(ctx); err != nil {
			return fmt.Errorf("%w; --force finishes anyway, and who has not followed must join again", err)
		}
	}
	if err := pki.FinishPeers(r.keys(), r.now); err != nil {
		return err
	}
	list, err := ListMembers(ctx, r.dataDir)
	if err != nil {
		fmt.Fprintln(
			r.out,
			"Finished. This server no longer trusts what was replaced once it starts; the others no longer do once they have "+
				"heard of that and restarted.",
		)
		return nil
	}
	fmt.Fprintf(r.out, "The %d servers restart now, one after another.\n", len(list.Servers))
	if err := r.begun(ctx); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "Finished. What was replaced is no longer trusted.")
	return nil
}

// ready says which servers have not followed.
func (r peerRotation) ready(ctx context.Context) error {
	since, err := pki.AuthoritySince(r.keys(), pki.PeerAuthority)
	if err != nil || since.IsZero() {
		return err // FinishPeers says that there is nothing to finish
	}
	hash, err := pki.AuthorityHash(r.keys(), pki.PeerAuthority)
	if err != nil {
		return err
	}
	list, err := ListMembers(ctx, r.dataDir)
	if err != nil {
		return err
	}
	var behind []string
	for _, s := range list.Servers {
		if s.Authority != hash {
			behind = append(behind, nameOf(s))
		}
	}
	if len(behind) > 0 {
		return fmt.Errorf(
			"%s have no certificate of the new CA yet: wait for them, start or upgrade them, or take those that are lost off "+
				"the list with \"everynode members remove\"",
			strings.Join(behind, ", "),
		)
	}
	return nil
}

// begun waits until no server goes by what was replaced.
func (r peerRotation) begun(ctx context.Context) error {
	for end := time.Now().Add(r.patience); ; {
		list, err := ListMembers(ctx, r.dataDir)
		var left []string
		for _, s := range list.Servers {
			if s.Problem != "" || s.Replacing || s.Outdated {
				left = append(left, nameOf(s))
			}
		}
		if err == nil && len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf(
				"servers that start from now on trust the old one no more; that all have begun again did not show within %v "+
					"(still to come: %s): see \"everynode members\"",
				r.patience, orDash(strings.Join(left, ", ")),
			)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// outdated are the servers that go by an authority that is trusted no more.
func outdated(list members.List) (out []string) {
	for _, s := range list.Servers {
		if s.Outdated {
			out = append(out, nameOf(s))
		}
	}
	return out
}
