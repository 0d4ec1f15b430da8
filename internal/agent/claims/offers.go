package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
)

// absence is how long a driver may be away before what it offers is taken back: an upgrade of it is shorter.
const absence = 30 * time.Second

// Offers are the ResourceSlices of the node, by which drivers offer devices.
type Offers interface {
	List(ctx context.Context) ([]resourcev1.ResourceSlice, error)
	Delete(ctx context.Context, name string) error
}

// Run takes back what drivers offer that went away, or did not come again when the agent started: nobody would prepare
// those devices.
func (m *Manager) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.left:
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return
			case <-m.cfg.Clock.After(absence):
			}
			err := m.withdraw(ctx)
			if again = err != nil && ctx.Err() == nil; again {
				klog.FromContext(ctx).Info("Could not take back what drivers offer that are away, will try again", "err", err)
			}
		}
	}
}

// withdraw deletes the slices of drivers that are not there.
func (m *Manager) withdraw(ctx context.Context) error {
	slices, err := m.cfg.Offers.List(ctx)
	if err != nil {
		return fmt.Errorf("list the ResourceSlices of the node: %w", err)
	}
	var errs []error
	for i := range slices {
		driver := slices[i].Spec.Driver
		if _, err := m.socket(driver); err == nil {
			continue
		}
		if err := m.cfg.Offers.Delete(ctx, slices[i].Name); err != nil {
			errs = append(errs, fmt.Errorf("delete ResourceSlice %s: %w", slices[i].Name, err))
			continue
		}
		klog.FromContext(ctx).Info("Took back what a driver offers that is away", "driver", driver, "slice", slices[i].Name)
	}
	return errors.Join(errs...)
}

// someLeft has Run look once more.
func (m *Manager) someLeft() {
	select {
	case m.left <- struct{}{}:
	default:
	}
}
