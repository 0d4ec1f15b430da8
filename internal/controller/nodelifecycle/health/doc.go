// Package health decides from signs of life and conditions how each node stands
// and what the cluster must be told about it: conditions that become Unknown, taints,
// and pods that can no longer be called ready.
//
// A node gives signs of life by renewing its lease and by posting its status. After a
// grace period without any it has lapsed:
//
//	reporting --GracePeriod without a sign--> lapsed --a sign--> reporting
//
// Only the time at which a sign was noticed counts, never the time written in it, so a
// node's wrong clock does no harm, and whoever starts a Tracker gives every node a full
// grace period, however old its lease became while nobody was there to see it renewed.
//
// NoSchedule taints follow conditions at once. NoExecute taints evict pods, so they are
// given out slowly per zone, slower still when much of a large zone is unhealthy, and not
// at all when no zone has a healthy node: then it is this side that is cut off.
//
// The package is pure: times are arguments. A sign of life costs O(1), a lapse O(log N).
package health
