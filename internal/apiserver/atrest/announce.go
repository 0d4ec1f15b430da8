package atrest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/encryption"
)

// How often a server tells which keys it uses, and after how long it is silent.
const (
	announceInterval = 10 * time.Second
	announcePatience = 40 * time.Second
)

// Announcer tells all, by a Lease in kube-system, which keys this server uses.
type Announcer struct {
	Keeper *Keeper
	Client kubernetes.Interface
	// Name is the server's, the same after each start; Host is where it runs.
	Name, Host string
}

// Run tells it until ctx ends.
func (a *Announcer) Run(ctx context.Context) {
	clock := a.Keeper.config.Clock
	for {
		next := announceInterval
		if err := a.announce(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			klog.FromContext(ctx).Error(err, "Could not tell which keys this server uses")
			next = time.Second
		}
		if hash, settled := a.Keeper.Hash(); hash != "" && !settled {
			next = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-a.Keeper.Changed():
		case <-clock.After(next):
		}
	}
}

// Withdraw says that this server has ended: nobody needs to wait for it.
func (a *Announcer) Withdraw(ctx context.Context) error {
	err := a.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, a.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("withdraw this server's Lease: %w", err)
	}
	return nil
}

func (a *Announcer) announce(ctx context.Context) error {
	leases := a.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	found, err := leases.Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read this server's Lease: %w", err)
	}
	isNew := err != nil
	if isNew {
		found = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: metav1.NamespaceSystem}}
	}
	a.fill(found)
	if isNew {
		_, err = leases.Create(ctx, found, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write this server's Lease: %w", err)
	}
	return nil
}

func (a *Announcer) fill(l *coordinationv1.Lease) {
	hash, settled := a.Keeper.Hash()
	metav1.SetMetaDataLabel(&l.ObjectMeta, encryption.LeaseLabel, "true")
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, encryption.HashAnnotation, hash)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, encryption.SettledAnnotation, strconv.FormatBool(settled))
	l.Spec.HolderIdentity = new(a.Host)
	l.Spec.LeaseDurationSeconds = new(int32(announcePatience / time.Second))
	l.Spec.RenewTime = &metav1.MicroTime{Time: a.Keeper.config.Clock.Now()}
}
