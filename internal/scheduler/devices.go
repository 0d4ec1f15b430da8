package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/devices"
)

// followDevices begins to watch what drivers offer and what pods claim, once the first pod with a claim waits. Until
// all of that is known no such pod gets a node.
func (s *Scheduler) followDevices(ctx context.Context) func() {
	begun := false
	return func() {
		if begun {
			return
		}
		begun = true
		go func() {
			err := s.feed(ctx, []source{
				{&resourcev1.DeviceClass{}, handler(s.inbox, kindDevices)},
				{&resourcev1.ResourceSlice{}, handler(s.inbox, kindDevices)},
				{&resourcev1.ResourceClaim{}, handler(s.inbox, kindDevices)},
			})
			if err != nil {
				if ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Could not watch devices; pods with resource claims get no node")
				}
				return
			}
			s.inbox.put(message{kind: kindDevicesKnown})
		}()
	}
}

// onDevices takes over what the API says of a class, a slice or a claim.
func (l *loop) onDevices(m message) {
	now := l.clock.Now()
	switch object := m.object.(type) {
	case *resourcev1.DeviceClass:
		if m.deleted {
			l.devices.DeleteClass(object.Name)
		} else {
			l.devices.SetClass(object)
		}
		l.devicesChanged("")
	case *resourcev1.ResourceSlice:
		if m.deleted {
			l.devices.DeleteSlice(object)
			return
		}
		l.devices.SetSlice(object)
		node := ""
		if object.Spec.NodeName != nil {
			node = *object.Spec.NodeName
		}
		l.devicesChanged(node)
	case *resourcev1.ResourceClaim:
		var freed *resourcev1.ResourceClaim
		if m.deleted {
			freed = l.devices.DeleteClaim(object)
		} else if freed = l.devices.SetClaim(object); object.Status.Allocation != nil {
			freed = nil
		}
		l.queue.ClaimChanged(devices.Key(object.Namespace, object.Name), now)
		if freed != nil && freed.Status.Allocation != nil {
			l.devicesChanged(devices.Node(freed))
		}
	}
}

// devicesChanged tells the waiting pods that a node may have devices for them, or that any may.
func (l *loop) devicesChanged(node string) {
	if node == "" {
		l.queue.ChangedEverywhere(fit.DevicesChanged, l.clock.Now())
		return
	}
	l.queue.Changed(node, fit.DevicesChanged, l.clock.Now())
}

// giveDevices has the claims of a pod that was placed promised their devices. It says whether that could be done.
func (l *loop) giveDevices(ctx context.Context, pod *fit.Pod, node string) ([]devices.Gift, bool) {
	if len(pod.Object.Spec.ResourceClaims) == 0 {
		return nil, true
	}
	gifts, err := l.devices.Gifts(pod.Object, l.cluster.Node(node).Object())
	if err != nil {
		klog.FromContext(ctx).Error(
			err, "Devices that were found cannot be given", "pod", klog.KObj(pod.Object), "node", node,
		)
		return nil, false
	}
	for _, gift := range gifts {
		l.devices.Promise(gift.Next)
	}
	return gifts, true
}

// takeBackDevices makes free what was promised and not written.
func (l *loop) takeBackDevices(gifts []devices.Gift) {
	for _, gift := range gifts {
		if l.devices.Forget(gift.Next) {
			l.promiseEnded(gift)
		}
	}
}

// promiseEnded tries the pods again that were told to wait for a claim.
func (l *loop) promiseEnded(gift devices.Gift) {
	l.queue.ClaimChanged(devices.Key(gift.Next.Namespace, gift.Next.Name), l.clock.Now())
	if gift.Next.Status.Allocation != nil {
		l.devicesChanged(devices.Node(gift.Next))
	}
}

// latest is when a binding that had no answer is done at the latest: the server ends a request before.
const latest = 2 * time.Minute

// giveBackDevices has those claims freed that only a pod has which fits nowhere. Until that is known to be done, or
// not, the pod gets no node: it would be bound as one that has its devices. One that may have a node by now keeps them.
func (l *loop) giveBackDevices(pod *fit.Pod) {
	if l.clock.Now().Before(l.late[pod.UID]) {
		return
	}
	delete(l.late, pod.UID)
	gifts := l.devices.Stuck(pod.Object)
	for _, gift := range gifts {
		l.devices.Promise(gift.Next)
	}
	l.binder.free(pod, gifts)
}

// onSettled takes over how the writes of claims ended.
func (l *loop) onSettled(m message) {
	if m.err != nil {
		l.takeBackDevices(m.gifts)
		return
	}
	for _, gift := range m.gifts {
		if l.devices.Until(gift.Next, m.version) {
			l.promiseEnded(gift)
		}
	}
}

// settled tells the loop that nothing of a write can come any more after a version of the claim.
func (b *binder) settled(gift devices.Gift, claim *resourcev1.ResourceClaim) {
	b.inbox.put(message{kind: kindSettled, uid: gift.Was.UID, gifts: []devices.Gift{gift}, version: claim.ResourceVersion})
}

// notSettled tells the loop that a claim is not written, and will not be.
func (b *binder) notSettled(gift devices.Gift, err error) {
	b.inbox.put(message{kind: kindSettled, uid: gift.Was.UID, gifts: []devices.Gift{gift}, err: err})
}

// later does a write after a pause.
func (b *binder) later(write func(context.Context)) {
	time.AfterFunc(againAfter, func() { b.add(&b.others, write) })
}

// giveDevices writes the claims of a pod before its binding. It returns those that were not written, and will not be.
func (b *binder) giveDevices(ctx context.Context, gifts []devices.Gift) ([]devices.Gift, error) {
	for i, gift := range gifts {
		err := b.giveDevice(ctx, gift, promised{was: gift.Was, next: gift.Next})
		if err == nil {
			continue
		}
		failed := gifts[i:]
		if errors.Is(err, errStands) {
			failed = failed[1:]
		}
		return failed, err
	}
	return nil, nil
}

// errStands is why a promise is not taken back though nobody knows that it was written: somebody else wrote the claim,
// or it may still come.
var errStands = errors.New("the claim may have its devices")

// promised is what is to be written of a gift, over what. Lost says that an earlier write had no answer, and may be
// done at any time.
type promised struct {
	was, next *resourcev1.ResourceClaim
	lost      bool
}

// giveDevice writes a claim. Where a write had no answer the claim is written again later, until what became of it is
// known: a device that is wrongly held for free is given twice.
func (b *binder) giveDevice(ctx context.Context, gift devices.Gift, p promised) error {
	claim, err := b.writer.BindClaim(ctx, p.was, p.next)
	if err == nil {
		b.settled(gift, claim)
		return nil
	}
	if refused(err) {
		return err
	}
	p.lost = p.lost || !apierrors.IsConflict(err)
	live, readErr := b.writer.ReadClaim(ctx, gift.Was)
	switch {
	case refused(readErr), readErr == nil && live.UID != gift.Was.UID:
		return err
	case readErr == nil && live.Status.Allocation != nil:
		b.settled(gift, live)
		return errors.Join(err, errStands)
	case readErr == nil && !p.lost:
		return err
	case readErr == nil:
		p.was, p.next = live, onto(live, gift.Next)
	}
	b.later(func(ctx context.Context) {
		if err := b.giveDevice(ctx, gift, p); err != nil && !errors.Is(err, errStands) {
			b.notSettled(gift, err)
		}
	})
	return errors.Join(err, errStands)
}

// onto is a claim as it is now with the devices that it is to have.
func onto(live, next *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	c := live.DeepCopy()
	c.Status.Allocation, c.Status.ReservedFor = next.Status.Allocation, next.Status.ReservedFor
	if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
	}
	return c
}

// refused says whether a write or reading cannot have been done, and cannot be done later.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}

// errHasNode is why devices are not given back.
var errHasNode = errors.New("the pod has a node")

// againAfter is the pause before a claim is written once more of which it is not known whether it was.
const againAfter = 10 * time.Second

// free gives back the devices of a pod that has no node and gets none where they are.
func (b *binder) free(pod *fit.Pod, gifts []devices.Gift) {
	for _, gift := range gifts {
		b.add(&b.others, func(ctx context.Context) { b.giveBack(ctx, pod, gift) })
	}
}

// giveBack gives back one claim, and tells the loop once it knows how that ended.
func (b *binder) giveBack(ctx context.Context, pod *fit.Pod, gift devices.Gift) {
	claim, err := b.writer.FreeClaim(ctx, pod.Object, gift.Next)
	if err == nil {
		b.settled(gift, claim)
		return
	}
	if ctx.Err() != nil {
		return
	}
	conflict := apierrors.IsConflict(err)
	if !conflict && !apierrors.IsNotFound(err) && !errors.Is(err, errHasNode) {
		klog.FromContext(ctx).Error(
			err, "Could not give back the devices of a pod that fits no node", "pod", klog.KObj(pod.Object),
		)
	}
	if !refused(err) && !errors.Is(err, errHasNode) {
		claim, readErr := b.writer.ReadClaim(ctx, gift.Was)
		switch {
		case readErr == nil && claim.UID == gift.Was.UID && (conflict || claim.ResourceVersion != gift.Was.ResourceVersion):
			// It was done, or somebody wrote something else over which it cannot be done any more.
			b.settled(gift, claim)
			return
		case readErr == nil && claim.UID != gift.Was.UID, refused(readErr):
		default:
			// It may still be done. To do it twice does no harm.
			b.later(func(ctx context.Context) { b.giveBack(ctx, pod, gift) })
			return
		}
	}
	b.notSettled(gift, err)
}

func (w clientWriter) BindClaim(ctx context.Context,
	was, next *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	api := w.client.ResourceV1().ResourceClaims(next.Namespace)
	if !slices.Equal(was.Finalizers, next.Finalizers) {
		protected := was.DeepCopy()
		protected.Finalizers = next.Finalizers
		written, err := api.Update(ctx, protected, metav1.UpdateOptions{})
		if err != nil {
			return nil, fmt.Errorf("protect ResourceClaim %s: %w", klog.KObj(next), err)
		}
		status := next.Status
		next = written.DeepCopy()
		next.Status = status
	}
	written, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the devices of ResourceClaim %s: %w", klog.KObj(next), err)
	}
	return written, nil
}

func (w clientWriter) ReadClaim(ctx context.Context,
	claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	read, err := w.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ResourceClaim %s: %w", klog.KObj(claim), err)
	}
	return read, nil
}

func (w clientWriter) FreeClaim(ctx context.Context, pod *corev1.Pod,
	claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	live, err := w.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read pod %s, whose devices are to be given back: %w", klog.KObj(pod), err)
	}
	if live.UID != pod.UID || live.Spec.NodeName != "" {
		return nil, errHasNode
	}
	written, err := w.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("give back the devices of ResourceClaim %s: %w", klog.KObj(claim), err)
	}
	return written, nil
}
