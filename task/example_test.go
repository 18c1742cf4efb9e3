package task_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/task"
)

// The payload has the format that honker's Python and JVM bindings use for decorated tasks. Their
// workers can run this task, and Handlers can run tasks from those bindings.
func ExampleHandlers() {
	ctx, stop := context.WithCancel(context.Background())
	dir, _ := os.MkdirTemp("", "task")
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	queue := honker.NewQueue[task.Task](db, "tasks", nil)
	call, _ := task.New("shop.tasks.total", 19, 4)
	id, _ := queue.Enqueue(ctx, call)
	info, _ := queue.Get(ctx, id)
	fmt.Println(string(info.Payload))

	handlers := task.Handlers{
		"shop.tasks.total": func(_ context.Context, call task.Task) (any, error) {
			var a, b int
			if err := call.Arg(0, &a); err != nil {
				return nil, err
			}
			if err := call.Arg(1, &b); err != nil {
				return nil, err
			}
			return a + b, nil
		},
	}
	worker := make(chan error)
	go func() { worker <- queue.Work(ctx, handlers.Handle, nil) }()

	total, err := honker.WaitResult[int](ctx, db, id)
	fmt.Println("total:", total, err)
	stop()
	fmt.Println("worker:", <-worker)
	// Output:
	// {"__honker_task__":{"task":"shop.tasks.total","args":[19,4],"kwargs":{}}}
	// total: 23 <nil>
	// worker: <nil>
}
