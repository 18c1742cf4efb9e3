package honker_test

import (
	"context"
	"fmt"

	"github.com/honker-go/honker"
)

// The payload is what honker's Python and JVM bindings write for a decorated task: their
// workers can take this one, and Tasks takes theirs.
func ExampleTasks() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	queue := honker.NewQueue[honker.Task](db, "tasks", nil)
	task, _ := honker.NewTask("shop.tasks.total", 19, 4)
	id, _ := queue.Enqueue(ctx, task)
	info, _ := queue.Get(ctx, id)
	fmt.Println(string(info.Payload))

	tasks := honker.Tasks{
		"shop.tasks.total": func(_ context.Context, task honker.Task) (any, error) {
			var a, b int
			if err := task.Arg(0, &a); err != nil {
				return nil, err
			}
			if err := task.Arg(1, &b); err != nil {
				return nil, err
			}
			return a + b, nil
		},
	}
	worker := make(chan error)
	go func() { worker <- queue.Work(ctx, tasks.Handle, nil) }()

	total, err := honker.WaitResult[int](ctx, db, id)
	fmt.Println("total:", total, err)
	stop()
	fmt.Println("worker:", <-worker)
	// Output:
	// {"__honker_task__":{"task":"shop.tasks.total","args":[19,4],"kwargs":{}}}
	// total: 23 <nil>
	// worker: <nil>
}
