package membership

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/bootstrap/services"
	"github.com/everynode/everynode/internal/server/election/fitness"
	"github.com/everynode/everynode/internal/storage/members"
	"github.com/everynode/everynode/internal/storage/members/jointoken"
)

// Each of several servers renews a Lease, by which the others know that it lives and
// where its API is.
const (
	presencePrefix   = "apiserver-"
	presenceLabel    = "apiserver.kubernetes.io/identity"
	presenceKind     = "everynode-server"
	presenceAddress  = "everynode.io/advertise-address"
	presenceSchema   = "everynode.io/schema"
	presenceGivesWay = "everynode.io/gives-way"
	presenceInterval = 2 * time.Second
	// presenceForgotten is after how long the Lease of a dead server is removed.
	presenceForgotten = time.Hour
)

// KeepPresence renews this server's Lease and has the endpoints of the API be those of
// the servers that live, until ctx ends. Then this server is not among them any more.
func (s *Servers) KeepPresence(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.api())
	if err != nil {
		return fmt.Errorf("make the client for the servers' leases: %w", err)
	}
	var seen members.Presence
	for failed := false; ; {
		attempt, cancel := context.WithTimeout(ctx, 2*presenceInterval)
		err := s.bePresent(attempt, client, &seen)
		cancel()
		if err != nil && !failed && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not tell the other servers that this one lives")
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceInterval)
			defer cancel()
			s.forgetPresence(farewell, s.Name())
			if err := s.publish(farewell, client, &seen); err != nil {
				klog.FromContext(ctx).V(2).Info("Could not take this server from the API's endpoints; the others will", "err", err)
			}
			return nil
		case <-time.After(presenceInterval):
		}
	}
}

func (s *Servers) bePresent(ctx context.Context, client kubernetes.Interface, seen *members.Presence) error {
	ip, port := s.advertise()
	leases := client.CoordinationV1().Leases(members.LoopsNamespace)
	wanted := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: members.LoopsNamespace, Name: presencePrefix + s.Name(),
			Labels: map[string]string{presenceLabel: presenceKind},
			Annotations: map[string]string{
				presenceAddress: fmt.Sprint(netip.AddrPortFrom(addrOf(ip), uint16(port))), //nolint:gosec // A port.
				presenceSchema:  strconv.Itoa(v1alpha1.Schema),
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(s.Name()), RenewTime: &metav1.MicroTime{Time: time.Now()},
			LeaseDurationSeconds: ptr.To(int32(members.Patience / time.Second)),
		},
	}
	if why := s.givesWay(); why != "" {
		wanted.Annotations[presenceGivesWay] = why
	}
	current, err := leases.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil:
		wanted.ResourceVersion = current.ResourceVersion
		_, err = leases.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	if err := s.publish(ctx, client, seen); err != nil {
		return err
	}
	if err := s.remember(); err != nil {
		return err
	}
	return s.dropToken(ctx, client)
}

// dropToken removes the join token that this server has joined with, once.
func (s *Servers) dropToken(ctx context.Context, client kubernetes.Interface) error {
	if s.file == nil || s.file.Token == "" {
		return nil
	}
	if err := jointoken.Drop(ctx, client, s.file.Token); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	next := *s.file
	next.Token = ""
	if err := next.Write(s.options.DataDir); err != nil {
		return err
	}
	s.file.Token = ""
	return nil
}

// publish writes where the servers are that live.
func (s *Servers) publish(ctx context.Context, client kubernetes.Interface, seen *members.Presence) error {
	leases := client.CoordinationV1().Leases(members.LoopsNamespace)
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: presenceLabel + "=" + presenceKind})
	if err != nil {
		return fmt.Errorf("list the servers' leases: %w", err)
	}
	marks, addresses, knows := map[string]string{}, map[string]netip.AddrPort{}, map[string]fitness.Server{}
	for _, l := range list.Items {
		address, err := netip.ParseAddrPort(l.Annotations[presenceAddress])
		if err != nil || l.Spec.RenewTime == nil {
			continue // somebody else's
		}
		marks[l.Name], addresses[l.Name] = l.Spec.RenewTime.String(), address
		schema, _ := strconv.Atoi(l.Annotations[presenceSchema]) // 0 for a program of before that was said
		knows[l.Name] = fitness.Server{Name: strings.TrimPrefix(l.Name, presencePrefix), Knows: schema}
	}
	living, dead := seen.Look(time.Now(), marks, presenceForgotten)
	var at []netip.AddrPort
	var others []fitness.Server
	for _, name := range living {
		at = append(at, addresses[name])
		if name != presencePrefix+s.Name() {
			others = append(others, knows[name])
		}
	}
	s.living.Store(&at)
	s.others.Store(&others)
	if err := services.PointAt(ctx, client, at); err != nil {
		return fmt.Errorf("write the API's endpoints: %w", err)
	}
	for _, name := range dead {
		if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the lease of a server that is gone: %w", err)
		}
	}
	return nil
}

// forgetPresence removes a server's Lease. If that fails, the Lease ends by itself.
func (s *Servers) forgetPresence(ctx context.Context, name string) {
	client, err := kubernetes.NewForConfig(s.api())
	if err == nil {
		err = client.CoordinationV1().Leases(members.LoopsNamespace).Delete(ctx, presencePrefix+name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info(
			"Could not remove the lease of a server; it ends by itself", "server", name, "err", err,
		)
	}
}

// remember keeps who the servers are, for a start at which none of them answers.
func (s *Servers) remember() error {
	if s.etcd == nil || s.file == nil {
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	next := *s.file
	next.Known = s.known()
	if s.leaving.Load() || fmt.Sprint(next.Known) == s.remembered {
		return nil
	}
	if err := next.Write(s.options.DataDir); err != nil {
		return err
	}
	s.remembered = fmt.Sprint(next.Known)
	return nil
}
