package devices

import (
	"context"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

func claim() resource.Definition {
	return resource.Of[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](resource.Kind{
		GroupVersion: resourcev1.SchemeGroupVersion, Kind: "ResourceClaim", Plural: "resourceclaims",
		Singular: "resourceclaim",
	}, resource.Rules[resourcev1.ResourceClaim]{
		// The specification never changes, so the kind keeps no generation.
		Status: func(c *resourcev1.ResourceClaim) any { return &c.Status },
		Default: func(c *resourcev1.ResourceClaim) {
			defaultClaim(&c.Spec)
			if a := c.Status.Allocation; a != nil {
				for i := range a.Devices.Results {
					defaultTolerations(a.Devices.Results[i].Tolerations)
				}
			}
		},
		PrepareForCreate: func(_ context.Context, c *resourcev1.ResourceClaim) { dropUnknown(&c.Spec) },
		Validate: func(_ context.Context, c *resourcev1.ResourceClaim) field.ErrorList {
			return validateClaimSpec(&c.Spec, specPath)
		},
		ValidateUpdate: func(_ context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
			return alike.Unchanged(c.Spec, old.Spec, specPath)
		},
		PrepareStatusForUpdate: func(_ context.Context, c, old *resourcev1.ResourceClaim) {
			c.Spec = old.Spec
			metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
			dropReleased(&c.Status, &old.Status)
		},
		ValidateStatusUpdate: func(_ context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
			return ValidateStatus(c, old)
		},
		StatusResetFields: []string{"metadata", "spec"},
		Table: table.Of(func(c *resourcev1.ResourceClaim, now time.Time) []any {
			return []any{c.Name, state(c), table.Since(c.CreationTimestamp, now)}
		}, table.Name,
			table.Column{
				Name: "State",
				Description: "Whether the claim has its devices, and whether somebody uses them: pending, allocated, reserved, " +
					"deleted.",
			},
			table.Age),
	})
}

func state(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation == nil && c.DeletionTimestamp == nil:
		states = append(states, "pending")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}

// device names one that a claim has, or its share of one.
type device struct{ driver, pool, name, share string }

// String implements fmt.Stringer.
func (d device) String() string {
	name := d.driver + "/" + d.pool + "/" + d.name
	if d.share != "" {
		name += "/" + d.share
	}
	return name
}

func allocated(a *resourcev1.AllocationResult) map[device]bool {
	found := map[device]bool{}
	if a != nil {
		for _, r := range a.Devices.Results {
			d := device{driver: r.Driver, pool: r.Pool, name: r.Device}
			if r.ShareID != nil {
				d.share = string(*r.ShareID)
			}
			found[d] = true
		}
	}
	return found
}

func reported(s resourcev1.AllocatedDeviceStatus) device {
	d := device{driver: s.Driver, pool: s.Pool, name: s.Device}
	if s.ShareID != nil {
		d.share = *s.ShareID
	}
	return d
}

// dropReleased forgets what drivers said of devices that the claim has no more, and what only later versions act on.
func dropReleased(status, old *resourcev1.ResourceClaimStatus) {
	if a := status.Allocation; a != nil {
		for i := range a.Devices.Results {
			a.Devices.Results[i].SkipNodeOperations = nil
		}
	}
	before, now := allocated(old.Allocation), allocated(status.Allocation)
	status.Devices = slices.DeleteFunc(status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
		d := reported(s)
		return before[d] && !now[d]
	})
	if len(status.Devices) == 0 {
		status.Devices = nil
	}
}

// ValidateStatus checks a claim whose status is written.
func ValidateStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path := field.NewPath("status")
	status, before := &c.Status, &old.Status
	reserved := path.Child("reservedFor")
	errs := distinct(status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved,
		func(r resourcev1.ResourceClaimConsumerReference) string { return string(r.UID) }, validateConsumer)
	has := allocated(status.Allocation)
	errs = append(errs, distinct(status.Devices, -1, path.Child("devices"), reported,
		func(s resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return validateReport(s, has, at)
		})...)
	if len(status.ReservedFor) > 0 {
		added := !sets.New(before.ReservedFor...).HasAll(status.ReservedFor...)
		switch {
		case status.Allocation == nil:
			errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
		case c.DeletionTimestamp != nil && added:
			errs = append(errs, field.Forbidden(
				reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
			))
		}
	}
	allocation := path.Child("allocation")
	switch {
	case status.Allocation != nil && before.Allocation != nil:
		errs = append(errs, alike.Unchanged(status.Allocation, before.Allocation, allocation)...)
	case status.Allocation != nil:
		errs = append(errs, validateAllocation(status.Allocation, requestNames(&c.Spec.Devices), allocation)...)
	}
	return errs
}

func validateConsumer(r resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
		if f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), ""))
		}
	}
	return errs
}

// validateReport checks what a driver says of a device.
func validateReport(s resourcev1.AllocatedDeviceStatus, has map[device]bool, path *field.Path) field.ErrorList {
	errs := validateDriver(s.Driver, path.Child("driver"))
	errs = append(errs, validatePool(s.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(s.Device, path.Child("device"))...)
	if s.ShareID != nil {
		errs = append(errs, validateShare(*s.ShareID, path.Child("shareID"))...)
	}
	if d := reported(s); !has[d] {
		errs = append(errs, field.Invalid(path, d.String(), "must be an allocated device in the claim"))
	}
	at := path.Child("conditions")
	if len(s.Conditions) > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(at, len(s.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(s.Conditions, at)...)
	if s.Data != nil && len(s.Data.Raw) > 0 {
		errs = append(errs, validateParameters(
			*s.Data, path.Child("data"), false, resourcev1.AllocatedDeviceStatusDataMaxLength,
		)...)
	}
	return append(errs, validateNetworkData(s.NetworkData, path.Child("networkData"))...)
}

func validateNetworkData(n *resourcev1.NetworkDeviceData, path *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	var errs field.ErrorList
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs = append(errs, field.TooLong(
			path.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength,
		))
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs = append(errs, field.TooLong(
			path.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength,
		))
	}
	return append(errs, distinct(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, path.Child("ips"), itself,
		func(address string, at *field.Path) field.ErrorList {
			return utilvalidation.IsValidInterfaceAddress(at, address)
		})...)
}
