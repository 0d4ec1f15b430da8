package standalone

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/server/standalone/fencing"
)

// A leader that dies is followed when its Lease has run out; one that cannot renew it stops well before.
const (
	leaseLasts = 15 * time.Second
	renewBy    = 10 * time.Second
)

// elect has the manager lead only when it is elected, and returns the fence of the Lease that says so.
func elect(ctx context.Context, options *manager.Options, o Options,
	recorder record.EventRecorder) (*fencing.Fence, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this instance in the election: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	klog.FromContext(ctx).Info("Stands for election", "lease", klog.KRef(o.LeaseNamespace, o.LeaseName), "identity",
		identity)
	config := restclient.AddUserAgent(o.Config, "leader-election")
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.LeaseNamespace, o.LeaseName,
		resourcelock.ResourceLockConfig{Identity: identity, EventRecorder: recorder}, config, renewBy)
	if err != nil {
		return nil, fmt.Errorf("set up the election: %w", err)
	}
	fence := fencing.New(lock, leaseLasts, clock.RealClock{})
	options.LeaderElection, options.LeaderElectionID = true, o.LeaseName
	options.LeaseDuration, options.RenewDeadline = ptr.To(leaseLasts), ptr.To(renewBy)
	options.LeaderElectionResourceLockInterface = fence
	return fence, nil
}
